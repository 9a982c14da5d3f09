import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useSession } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { Failure } from '../../ui/states.tsx';

type User = Operations['GET /v1/admin/users']['answer']['data'][number];

const UPDATE = 'PUT /v1/admin/users/{userId}';
const OWNERSHIP = 'POST /v1/admin/users/{userId}/ownership';

/** Changes name and role of a user, and says what the role means. */
export function Change({ user, onClose }: { user: User; onClose: () => void }) {
  const { session, refresh } = useSession();
  const [first, setFirst] = useState(user.first_name);
  const [last, setLast] = useState(user.last_name);
  const [role, setRole] = useState(user.role);
  const write = useWrite(UPDATE);
  const own = user.id === session.user.id;
  const path = { userId: user.id };
  const body = {
    ...(first !== user.first_name && { first_name: first.trim() }),
    ...(last !== user.last_name && { last_name: last.trim() }),
    ...(role !== user.role && role !== 'owner' && { role }),
  };
  const done = async () => {
    if (own) await refresh();
    onClose();
  };
  const labels = { first_name: t('First name'), last_name: t('Last name'), role: t('Role') };
  return (
    <Dialog title={t('Change {name}', { name: user.email })} onClose={onClose}>
      <Form
        error={write.error}
        labels={labels}
        onSubmit={() => write.mutate({ path, body }, { onSuccess: () => void done() })}
      >
        <Field name="first_name" label={labels.first_name}>
          {(control) => (
            <input {...control} type="text" value={first} onChange={(event) => setFirst(event.target.value)} />
          )}
        </Field>
        <Field name="last_name" label={labels.last_name}>
          {(control) => (
            <input {...control} type="text" value={last} onChange={(event) => setLast(event.target.value)} />
          )}
        </Field>
        {user.role !== 'owner' && !own && (
          <Field
            name="role"
            label={labels.role}
            help={
              role === 'admin'
                ? t('Admins see and change everything but the ownership, in every workspace.')
                : t('Members work in the workspaces that they belong to, with the role they have there.')
            }
          >
            {(control) => (
              <select {...control} value={role} onChange={(event) => setRole(event.target.value as User['role'])}>
                <option value="member">{t('member')}</option>
                <option value="admin">{t('admin')}</option>
              </select>
            )}
          </Field>
        )}
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Save')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: UPDATE, path, body }} />
        </div>
      </Form>
    </Dialog>
  );
}

/** Hands the organisation over: the admin becomes the owner, and the owner an admin. */
export function HandOver({ user, onClose }: { user: User; onClose: () => void }) {
  const { refresh } = useSession();
  const [typed, setTyped] = useState('');
  const write = useWrite(OWNERSHIP);
  const path = { userId: user.id };
  const may = typed === user.email;
  const done = async () => {
    await refresh();
    onClose();
  };
  return (
    <Dialog title={t('Make {name} the owner', { name: user.email })} onClose={onClose}>
      <p>{t('They become the owner and you become an admin. Only they can hand it back.')}</p>
      <label className="field">
        <span>{t('Type {name} to hand the organisation over', { name: user.email })}</span>
        <input type="text" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
      </label>
      {write.error && <Failure error={write.error} />}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate({ path }, { onSuccess: () => void done() })}
        >
          {t('Hand over')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: OWNERSHIP, path }} />
      </div>
    </Dialog>
  );
}
