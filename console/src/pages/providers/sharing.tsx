import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan, useSession } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Badge, Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { type Column, ListTable } from '../../ui/table.tsx';
import type { AccountDetail } from './words.tsx';

const LIST = 'GET /v1/integrations/{slug}/workspaces';
const SET = 'PUT /v1/integrations/{slug}/workspaces';

/** Which workspaces may use an account of the organisation. */
export function Sharing({ account }: { account: AccountDetail }) {
  const can = useCan();
  const { session } = useSession();
  const path = { slug: account.slug };
  const access = useApi(LIST, { path });
  const write = useWrite(SET);
  const everyone = account.global_workspace_access_settings.enabled;
  const entries = access.data?.workspaces ?? [];
  type Workspace = (typeof session.workspaces)[number];
  const isOpen = ({ id }: Workspace) => entries.find((entry) => entry.id === id)?.enabled ?? everyone;
  // The first list that is sent closes the account to all others, unless it says how they are.
  const share = ({ id }: Workspace, enabled: boolean) =>
    write.mutate({
      path,
      body: {
        workspaces: [{ id, enabled, ...(enabled && { create_default_provider: true }) }],
        global_workspace_access: { enabled: everyone },
      },
    });
  const state = (row: Workspace) =>
    isOpen(row) ? <Badge tone="ok">{t('may use it')}</Badge> : <Badge tone="quiet">{t('closed')}</Badge>;
  const acts = (row: Workspace) =>
    can('organisation_integrations.update') && (
      <button type="button" className="button small" onClick={() => share(row, !isOpen(row))}>
        {isOpen(row) ? t('Stop sharing') : t('Share')}{' '}
        <span className="visually-hidden" translate="no">
          {row.name}
        </span>
      </button>
    );
  const limits = (row: Workspace) => {
    const [limit] = entries.find((entry) => entry.id === row.id)?.usage_limits ?? [];
    return limit?.credit_limit === undefined ? '–' : `$${limit.credit_limit}`;
  };
  const columns: Column<Workspace>[] = [
    { id: 'name', header: t('Workspace'), grow: true, cell: (row) => <span translate="no">{row.name}</span> },
    { id: 'state', header: t('Access'), cell: state },
    { id: 'limit', header: t('Own budget'), cell: limits },
    { id: 'acts', header: t('Actions'), cell: acts },
  ];
  return (
    <Card title={t('Workspaces')} id="sharing" actions={<AsCurl call={{ operation: LIST, path }} />}>
      <p className="muted">
        {everyone
          ? t('Every workspace may use it, except where it is closed.')
          : t('Only workspaces that it is shared with may use it.')}
      </p>
      {write.error && <Failure error={write.error} />}
      {access.error && <Failure error={access.error} onRetry={() => void access.refetch()} />}
      {!access.data && !access.error && <Loading what={t('workspaces')} rows={3} />}
      {access.data && (
        <ListTable
          label={t('Workspaces of the account')}
          columns={columns}
          rows={session.workspaces}
          keyOf={(row) => row.id}
          card={(row) => ({ head: <span translate="no">{row.name}</span>, detail: state(row), side: acts(row) })}
        />
      )}
    </Card>
  );
}
