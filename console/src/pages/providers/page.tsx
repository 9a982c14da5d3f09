/** Providers: accounts of the organisation, and how they did in the last day. */
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, usePagedList } from '../../api/queries.ts';
import { count, duration } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useListedWorkspace, useOneWorkspace, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { ListBody } from '../../ui/list.tsx';
import { Badge, PageHead } from '../../ui/page.tsx';
import { Empty } from '../../ui/states.tsx';
import type { Column } from '../../ui/table.tsx';
import { useLastDay } from './last-day.ts';
import { NewAccount } from './new-account.tsx';
import { type Account, kindName } from './words.tsx';

const PAGE = 100;

export function Page() {
  const can = useCan();
  const workspace = useOneWorkspace();
  const listed = useListedWorkspace();
  const { get, set } = useUrl();
  const query = { ...listed, page_size: PAGE };
  const { list, rows, total } = usePagedList<Account, Operations['GET /v1/integrations']['answer']>(
    ['GET /v1/integrations', query],
    (page, signal) => answer('GET /v1/integrations', { query: { ...query, current_page: page } }, { signal }),
  );
  const own = { query: { workspace_id: workspace?.id ?? '', page_size: 100 } };
  const providers = useApi('GET /v1/providers', own, { enabled: workspace !== null && can('providers.list') });
  const day = useLastDay();
  const slugsOf = (row: Account) =>
    (providers.data?.data ?? []).filter(({ integration_id: id }) => id === row.slug).map(({ slug }) => slug);
  const figures = (row: Account) => day.of(slugsOf(row));
  const create =
    can('organisation_integrations.create') || can('workspace_integrations.create') ? (
      <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
        {t('New account')}
      </button>
    ) : null;
  const name = (row: Account) => (
    <To path={`/providers/${row.slug}`} title={row.id}>
      <span translate="no">{row.name}</span>
    </To>
  );
  const names = (row: Account) => {
    const slugs = slugsOf(row);
    return slugs.length === 0 ? (
      <span className="muted">{t('not used here')}</span>
    ) : (
      <code>{slugs.map((slug) => `@${slug}`).join(', ')}</code>
    );
  };
  const columns: Column<Account>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: name },
    { id: 'kind', header: t('Kind'), cell: (row) => <span translate="no">{kindName(row.ai_provider_id)}</span> },
    {
      id: 'level',
      header: t('Of'),
      cell: (row) => (row.type === 'organisation' ? t('the organisation') : t('one workspace')),
    },
    { id: 'slugs', header: t('In requests'), cell: names },
    { id: 'requests', header: t('Requests, 24 h'), numeric: true, cell: (row) => count(figures(row).requests) },
    { id: 'success', header: t('Success'), cell: (row) => <Success figures={figures(row)} /> },
    { id: 'p95', header: t('p95'), numeric: true, cell: (row) => latency(figures(row).p95) },
    { id: 'limited', header: t('429'), numeric: true, cell: (row) => count(figures(row).limited) },
  ];
  return (
    <>
      <PageHead
        title={t('Providers')}
        purpose={
          <>
            {t('Accounts at providers. Names and figures are those of the workspace')}{' '}
            <strong translate="no">{workspace?.name ?? '–'}</strong>.
          </>
        }
        actions={
          <>
            <span data-key="curl">
              <AsCurl call={{ operation: 'GET /v1/integrations', query }} />
            </span>
            {create}
          </>
        }
      />
      <ListBody
        what={t('accounts')}
        label={t('Accounts')}
        list={list}
        total={total}
        columns={columns}
        rows={rows}
        keyOf={(row) => row.id}
        pathOf={(row) => `/providers/${row.slug}`}
        card={(row) => ({
          head: name(row),
          detail: (
            <>
              <span translate="no">{kindName(row.ai_provider_id)}</span>
              {names(row)}
            </>
          ),
          side: <Success figures={figures(row)} />,
        })}
        empty={<Empty title={t('No account yet. Bring a key of a provider to call its models.')}>{create}</Empty>}
      />
      {get('new') === '1' && <NewAccount onClose={() => set({ new: null })} />}
    </>
  );
}

const latency = (ms: number | null) => (ms === null ? '–' : duration(ms));

function Success({ figures }: { figures: { requests: number; success: number | null } }) {
  const { requests, success } = figures;
  if (requests === 0 || success === null) return <Badge tone="quiet">{t('not used')}</Badge>;
  const tone = success >= 99 ? 'ok' : success >= 90 ? 'warn' : 'bad';
  return <Badge tone={tone}>{`${success.toLocaleString('en', { maximumFractionDigits: 1 })} %`}</Badge>;
}
