/** One workspace: its people and their roles, what it has, and how it is archived. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import type { Operations } from '../../../types/api.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { count, date } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan, useSession } from '../../shell/session.tsx';
import { useHref, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { type Column, ListTable } from '../../ui/table.tsx';

type Workspace = Operations['GET /v1/admin/workspaces/{workspaceId}']['answer'];
type Member = Operations['GET /v1/admin/workspaces/{workspaceId}/users']['answer']['data'][number];
type Role = Member['role'];

const DAY_MS = 86_400_000;
const ROLES: readonly Role[] = ['member', 'manager', 'admin'];

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const { data, error, refetch } = useApi('GET /v1/admin/workspaces/{workspaceId}', { path: { workspaceId: id } });
  return (
    <>
      <p className="crumb">
        <To path="/workspaces">← {t('Workspaces')}</To>
      </p>
      {error && !data && (
        <>
          <PageHead title={t('Workspace')} />
          <Failure error={error} onRetry={() => void refetch()} />
        </>
      )}
      {!data && !error && (
        <>
          <PageHead title={t('Workspace')} />
          <Loading what={t('the workspace')} />
        </>
      )}
      {data && <Shown workspace={data} />}
    </>
  );
}

function Shown({ workspace }: { workspace: Workspace }) {
  const zone = useZone();
  const can = useCan();
  const [asked, setAsked] = useState(false);
  const own = { ws: workspace.slug };
  return (
    <>
      <PageHead
        title={workspace.name}
        purpose={
          <span className="row wrap">
            <Badge tone={workspace.status === 'active' ? 'ok' : 'quiet'}>{t(workspace.status)}</Badge>
            <code>{workspace.slug}</code>
          </span>
        }
        actions={
          <>
            <AsCurl
              call={{ operation: 'GET /v1/admin/workspaces/{workspaceId}', path: { workspaceId: workspace.id } }}
            />
            {can('workspaces.delete') && workspace.status === 'active' && (
              <button type="button" className="button stop" onClick={() => setAsked(true)}>
                {t('Archive')}
              </button>
            )}
          </>
        }
      />
      <div className="stack">
        <Card title={t('About')} id="about">
          <Facts
            facts={[
              [t('Description'), workspace.description || '–'],
              [t('Made'), date(workspace.created_at, zone)],
              [t('Id'), <code key="id">{workspace.id}</code>],
            ]}
          />
          <p className="row wrap">
            <To path="/requests" params={own}>
              {t('Its requests')}
            </To>
            <To path="/spend" params={own}>
              {t('Its spend')}
            </To>
            <To path="/keys" params={own}>
              {t('Its API keys')}
            </To>
          </p>
        </Card>
        {can('workspace_users.list') && <Members workspace={workspace} />}
      </div>
      {asked && <Archive workspace={workspace} onClose={() => setAsked(false)} />}
    </>
  );
}

function Members({ workspace }: { workspace: Workspace }) {
  const can = useCan();
  const path = { workspaceId: workspace.id };
  const members = useApi('GET /v1/admin/workspaces/{workspaceId}/users', { path, query: { page_size: 100 } });
  const change = useWrite('PUT /v1/admin/workspaces/{workspaceId}/users/{userId}');
  const remove = useWrite('DELETE /v1/admin/workspaces/{workspaceId}/users/{userId}');
  const add = useWrite('POST /v1/admin/workspaces/{workspaceId}/users');
  const people = useApi(
    'GET /v1/admin/users',
    { query: { page_size: 100 } },
    { enabled: can('organisation_users.list') },
  );
  const rows = members.data?.data ?? [];
  const others = (people.data?.data ?? []).filter(({ id }) => !rows.some((row) => row.id === id));
  const [chosen, setChosen] = useState('');
  const role = (row: Member) =>
    can('workspace_users.update') ? (
      <select
        aria-label={t('Role of {name}', { name: row.email })}
        value={row.role}
        onChange={(event) =>
          change.mutate({ path: { ...path, userId: row.id }, body: { role: event.target.value as Role } })
        }
      >
        {ROLES.map((one) => (
          <option key={one} value={one}>
            {t(one)}
          </option>
        ))}
      </select>
    ) : (
      t(row.role)
    );
  const acts = (row: Member) =>
    can('workspace_users.delete') && (
      <button
        type="button"
        className="button small"
        onClick={() => remove.mutate({ path: { ...path, userId: row.id } })}
      >
        {t('Take out')}{' '}
        <span className="visually-hidden" translate="no">
          {row.email}
        </span>
      </button>
    );
  const sources = (row: Member) => row.sources.map(({ type }) => t(type)).join(', ') || '–';
  const columns: Column<Member>[] = [
    { id: 'email', header: t('E-mail address'), grow: true, cell: (row) => <span translate="no">{row.email}</span> },
    { id: 'role', header: t('Role'), cell: role },
    { id: 'by', header: t('By'), cell: sources },
    { id: 'acts', header: t('Actions'), cell: acts },
  ];
  const failure = change.error ?? remove.error ?? add.error;
  return (
    <Card
      title={t('People')}
      id="members"
      actions={
        <AsCurl call={{ operation: 'GET /v1/admin/workspaces/{workspaceId}/users', path, query: { page_size: 100 } }} />
      }
    >
      {failure && <Failure error={failure} />}
      {members.error && <Failure error={members.error} onRetry={() => void members.refetch()} />}
      {!members.data && !members.error && <Loading what={t('people')} rows={3} />}
      {members.data && rows.length === 0 && <p className="muted">{t('No one works here yet.')}</p>}
      {rows.length > 0 && (
        <ListTable
          label={t('People of the workspace')}
          columns={columns}
          rows={rows}
          keyOf={(row) => row.id}
          card={(row) => ({ head: row.email, detail: role(row), side: acts(row) })}
        />
      )}
      {can('workspace_users.create') && others.length > 0 && (
        <form
          className="row wrap"
          onSubmit={(event) => {
            event.preventDefault();
            if (chosen === '') return;
            const body = { users: [{ id: chosen, role: 'member' as const }] };
            add.mutate({ path, body }, { onSuccess: () => setChosen('') });
          }}
        >
          <label className="inline-field">
            <span>{t('Add')}</span>{' '}
            <select value={chosen} onChange={(event) => setChosen(event.target.value)}>
              <option value="">{t('Choose a person')}</option>
              {others.map(({ id, email }) => (
                <option key={id} value={id} translate="no">
                  {email}
                </option>
              ))}
            </select>
          </label>
          <button type="submit" className="button">
            {t('Add as member')}
          </button>
        </form>
      )}
    </Card>
  );
}

/** Says first what would stop, and asks for the name. */
function Archive({ workspace, onClose }: { workspace: Workspace; onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const { refresh } = useSession();
  const [typed, setTyped] = useState('');
  const [all, setAll] = useState(false);
  const [now] = useState(() => Date.now());
  const of = { workspace_id: workspace.id };
  const keys = useApi('GET /v1/api-keys', { query: { ...of, page_size: 1 } });
  const uses = useApi('GET /v1/logs/histogram', {
    query: { ...of, time_of_generation_min: new Date(now - DAY_MS).toISOString() } as NonNullable<unknown>,
  });
  const write = useWrite('DELETE /v1/admin/workspaces/{workspaceId}');
  const input = { path: { workspaceId: workspace.id }, body: { name: workspace.name, force_delete: all } };
  const may = typed === workspace.name;
  const leave = async () => {
    await refresh();
    navigate(href('/workspaces', { ws: null }));
  };
  return (
    <Dialog title={t('Archive {name}', { name: workspace.name })} onClose={onClose}>
      <p role="status">
        {keys.data && uses.data
          ? t('{keys} API keys stop at once. {n} requests used this workspace in the last 24 hours.', {
              keys: count(keys.data.total),
              n: count(uses.data.summary.total),
            })
          : t('Counting what would stop…')}
      </p>
      <label className="choice">
        <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} />
        <span>{t('Delete its configs, providers, members and files too')}</span>
      </label>
      <label className="field">
        <span>{t('Type {name} to archive it', { name: workspace.name })}</span>
        <input type="text" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
      </label>
      {write.error && <Failure error={write.error} />}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate(input, { onSuccess: () => void leave() })}
        >
          {t('Archive')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: 'DELETE /v1/admin/workspaces/{workspaceId}', ...input }} />
      </div>
    </Dialog>
  );
}
