import { useState } from 'react';
import { ApiError } from '../../api/client.ts';
import { useWrite } from '../../api/queries.ts';
import { count } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Failure } from '../../ui/states.tsx';
import type { AccountDetail } from './words.tsx';

const DELETE = 'DELETE /v1/integrations/{slug}';

/** Says first what would stop, and asks for the slug where something would. */
export function DeleteAccount(props: {
  account: AccountDetail;
  /** Requests of the last day in the chosen workspace. */
  used: number;
  /** Its providers there. */
  names: readonly string[];
  onClose: () => void;
  onDone: () => void;
}) {
  const { account, used, names, onClose, onDone } = props;
  const [typed, setTyped] = useState('');
  const write = useWrite(DELETE);
  // The server names what uses it, in every workspace.
  const inUse = write.error instanceof ApiError && write.error.status === 409;
  const must = inUse || names.length > 0;
  const may = !must || typed === account.slug;
  const input = { path: { slug: account.slug }, ...(inUse && { query: { force: true as const } }) };
  return (
    <Dialog title={t('Delete {name}', { name: account.name })} onClose={onClose}>
      <p role="status">
        {names.length === 0
          ? t('No provider of this workspace uses the account.')
          : t('{names} would stop. {n} requests used them in the last 24 hours.', {
              names: names.map((slug) => `@${slug}`).join(', '),
              n: count(used),
            })}
      </p>
      {write.error && <Failure error={write.error} />}
      {inUse && <p>{t('Delete again to delete it although it is in use: their requests fail from then on.')}</p>}
      {must && (
        <label className="field">
          <span>{t('Type {name} to delete it', { name: account.slug })}</span>
          <input type="text" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
        </label>
      )}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate(input, { onSuccess: onDone })}
        >
          {inUse ? t('Delete although it is in use') : t('Delete')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: DELETE, ...input }} />
      </div>
    </Dialog>
  );
}
