import { useState } from 'react';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { CopyLine } from '../../components/copy.tsx';
import { useSession } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';

const OPERATION = 'POST /v1/admin/users/invites';

/** Invites one person into workspaces, and shows the link to hand over. */
export function Invite({ onClose }: { onClose: () => void }) {
  const { session } = useSession();
  const [email, setEmail] = useState('');
  const [role, setRole] = useState<'admin' | 'member'>('member');
  const [joined, setJoined] = useState<readonly string[]>([]);
  const write = useWrite(OPERATION);
  const body = { email: email.trim(), role, workspaces: joined.map((id) => ({ id, role: 'member' as const })) };
  if (write.data) {
    return (
      <Dialog title={t('The invite is made')} onClose={onClose}>
        <p>{t('Hand this link to {email}. It works once.', { email: body.email })}</p>
        <CopyLine label={t('Link')} value={write.data.invite_link} />
        <button type="button" className="button primary" onClick={onClose}>
          {t('Done')}
        </button>
      </Dialog>
    );
  }
  return (
    <Dialog title={t('Invite somebody')} onClose={onClose}>
      <Form
        error={write.error}
        labels={{ email: t('E-mail address'), role: t('Role'), workspaces: t('Workspaces') }}
        onSubmit={() => write.mutate({ body })}
      >
        <Field name="email" label={t('E-mail address')}>
          {(control) => (
            <input
              {...control}
              type="email"
              autoComplete="off"
              value={email}
              onChange={(event) => setEmail(event.target.value)}
            />
          )}
        </Field>
        <Field name="role" label={t('Role')} help={t('Admins see and change everything but the ownership.')}>
          {(control) => (
            <select {...control} value={role} onChange={(event) => setRole(event.target.value as 'admin' | 'member')}>
              <option value="member">{t('member')}</option>
              <option value="admin">{t('admin')}</option>
            </select>
          )}
        </Field>
        <fieldset className="choices">
          <legend>{t('Workspaces')}</legend>
          {session.workspaces.map((one) => (
            <label key={one.id} className="choice">
              <input
                type="checkbox"
                checked={joined.includes(one.id)}
                onChange={(event) =>
                  setJoined(event.target.checked ? [...joined, one.id] : joined.filter((id) => id !== one.id))
                }
              />
              <span translate="no">{one.name}</span>
            </label>
          ))}
        </fieldset>
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Make the invite')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: OPERATION, body }} />
        </div>
      </Form>
    </Dialog>
  );
}
