import { type FormEvent, useCallback, useEffect, useState } from 'react';
import {
  ApiError,
  addPasskey,
  deletePasskey,
  listPasskeys,
  type Passkey,
  type Session,
  waysToSignIn,
} from '../api/client.ts';
import { Notice } from '../components/notice.tsx';

/** The passkeys of the user: made, shown and deleted here. */
export function Passkeys({ session }: { session: Session }) {
  const [offered, setOffered] = useState(true);
  const [passkeys, setPasskeys] = useState<Passkey[]>([]);
  const [name, setName] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const act = useCallback(async (what: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await what();
      setPasskeys(await listPasskeys());
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : 'The browser made no passkey. Try again.');
    }
    setBusy(false);
  }, []);

  useEffect(() => {
    waysToSignIn().then(
      (ways) => setOffered(ways.passkeys),
      () => undefined,
    );
    void act(async () => undefined);
  }, [act]);

  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    void act(async () => {
      await addPasskey(session, name.trim());
      setName('');
    });
  };

  return (
    <section className="card" aria-labelledby="passkeys-heading">
      <h2 id="passkeys-heading">Passkeys</h2>
      {!offered && (
        <p className="muted">
          Passkeys need an address with https and a name, or localhost. Set <code>SLUICE_PUBLIC_URL</code> to one.
        </p>
      )}
      {passkeys.length > 0 && (
        <ul aria-labelledby="passkeys-heading">
          {passkeys.map((passkey) => (
            <li key={passkey.id}>
              <strong>{passkey.name}</strong>{' '}
              <span className="muted">
                {passkey.last_used_at === null
                  ? 'not used yet'
                  : `last used ${new Date(passkey.last_used_at).toLocaleString()}`}
              </span>{' '}
              <button
                type="button"
                className="button"
                disabled={busy}
                onClick={() => void act(() => deletePasskey(session, passkey.id))}
              >
                Delete {passkey.name}
              </button>
            </li>
          ))}
        </ul>
      )}
      {offered && (
        <form onSubmit={onSubmit} className="paste">
          <label htmlFor="passkey-name">Name of the new passkey</label>
          <div className="row">
            <input
              id="passkey-name"
              type="text"
              required
              maxLength={100}
              autoComplete="off"
              value={name}
              onChange={(event) => setName(event.target.value)}
            />
            <button type="submit" className="button primary" disabled={busy || name.trim() === ''}>
              Add a passkey
            </button>
          </div>
        </form>
      )}
      {error !== null && <Notice tone="bad" title={error} />}
    </section>
  );
}
