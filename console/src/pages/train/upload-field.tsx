import { useRef, useState } from 'react';
import { upload } from '../../api/upload.ts';
import { t } from '../../app/i18n.ts';
import { useSession } from '../../shell/session.tsx';
import { Failure } from '../../ui/states.tsx';
import { usePlace } from './place.tsx';
import { bytes } from './words.tsx';

/** Takes a file by choice or by drop, sends it at once and shows how far it is. */
export function UploadField(props: { purpose: string; label: string; onDone: (id: string) => void }) {
  const { purpose, label, onDone } = props;
  const { session } = useSession();
  const { headers } = usePlace();
  const [file, setFile] = useState<File | null>(null);
  const [part, setPart] = useState(0);
  const [error, setError] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);
  const under = useRef<AbortController>(null);
  const send = async (chosen: File | undefined) => {
    if (chosen === undefined || busy) return;
    const stop = new AbortController();
    under.current = stop;
    setFile(chosen);
    setError(null);
    setPart(0);
    setBusy(true);
    try {
      const given = { file: chosen, purpose, csrf: session.csrf_token, headers, onProgress: setPart };
      onDone((await upload({ ...given, signal: stop.signal })).id);
    } catch (cause) {
      setError(cause);
    }
    setBusy(false);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the field inside does the same by keyboard
    <div
      className={over ? 'drop over' : 'drop'}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        void send(event.dataTransfer.files[0]);
      }}
    >
      <label className="field">
        <span>{label}</span>
        <input type="file" accept=".jsonl" disabled={busy} onChange={(event) => void send(event.target.files?.[0])} />
      </label>
      {busy && file !== null && (
        <div className="field" role="status">
          <progress value={part} max={1} aria-label={t('Progress of {name}', { name: file.name })} />
          <span className="row wrap">
            {t('{sent} of {all} sent', { sent: bytes(part * file.size), all: bytes(file.size) })}
            <button type="button" className="button small" onClick={() => under.current?.abort()}>
              {t('Stop')}
            </button>
          </span>
        </div>
      )}
      {error !== null && <Failure error={error} />}
    </div>
  );
}
