import { Circle, CircleCheck } from 'lucide-react';
import { useApi } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan, useSession } from '../../shell/session.tsx';
import { To } from '../../ui/link.tsx';

/** What is worth doing first, with what is done already. A step that cannot be read is left out. */
export function Checklist({ workspaceId, requested }: { workspaceId: string; requested: boolean }) {
  const can = useCan();
  const { session } = useSession();
  const users = useApi('GET /v1/admin/users', { query: { page_size: 2 } }, { enabled: can('organisation_users.list') });
  const policies = useApi(
    'GET /v1/policies/usage-limits',
    { query: { workspace_id: workspaceId, page_size: 1 } },
    { enabled: can('policies.list') },
  );
  const named = `${session.user.first_name} ${session.user.last_name}`.trim();
  const steps = [
    { text: t('Send a first request'), done: requested, path: null },
    ...(users.data ? [{ text: t('Invite somebody'), done: users.data.total > 1, path: '/people' }] : []),
    ...(policies.data ? [{ text: t('Set a budget'), done: policies.data.total > 0, path: '/workspaces' }] : []),
    { text: t('Give yourself a name'), done: named !== '' && named !== 'Owner', path: '/account' },
  ];
  return (
    <ol className="checklist" aria-label={t('First steps')}>
      {steps.map(({ text, done, path }) => (
        <li key={text}>
          {done ? <CircleCheck size={17} aria-hidden="true" /> : <Circle size={17} aria-hidden="true" />}
          {path === null || done ? text : <To path={path}>{text}</To>}
          <span className="visually-hidden">{done ? t('done') : t('not done yet')}</span>
        </li>
      ))}
    </ol>
  );
}
