import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { CopyLine } from '../../components/copy.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { faultsOf } from '../../ui/form.tsx';

const OPERATION = 'POST /v1/admin/users/invites/{inviteId}/resend';

/** Another link for an invite: the one before stops working, which is said first. */
export function NewLink(props: { invite: { readonly id: string; readonly email: string }; onClose: () => void }) {
  const { invite, onClose } = props;
  const write = useWrite(OPERATION);
  const path = { inviteId: invite.id };
  return (
    <Dialog title={t('New link for {email}', { email: invite.email })} onClose={onClose}>
      <p>{t('The link before stops working at once. The new one works for seven days, once.')}</p>
      {write.data && <CopyLine label={t('Link')} value={write.data.inviteLink} />}
      {write.error && (
        <p className="fault" role="alert">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        {!write.data && (
          <button type="button" className="button primary" onClick={() => write.mutate({ path })}>
            {t('Make the link')}
          </button>
        )}
        <button type="button" className="button" onClick={onClose}>
          {t('Close')}
        </button>
        <AsCurl call={{ operation: OPERATION, path }} />
      </div>
    </Dialog>
  );
}
