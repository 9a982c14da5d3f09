import { useState } from 'react';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { faultsOf } from '../../ui/form.tsx';

/** Removes a user, after the name was typed: sessions and keys go with them. */
export function Remove({ id, name, onClose }: { id: string; name: string; onClose: () => void }) {
  const [typed, setTyped] = useState('');
  const write = useWrite('DELETE /v1/admin/users/{userId}');
  const path = { userId: id };
  const may = typed === name;
  return (
    <Dialog title={t('Remove {name}', { name })} onClose={onClose}>
      <p>{t('Their sessions end at once and their own API keys stop working. Their requests stay in the logs.')}</p>
      <label className="field">
        <span>{t('Type {name} to remove them', { name })}</span>
        <input type="text" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
      </label>
      {write.error && (
        <p className="fault" role="alert">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate({ path }, { onSuccess: onClose })}
        >
          {t('Remove')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: 'DELETE /v1/admin/users/{userId}', path }} />
      </div>
    </Dialog>
  );
}
