/** One config: its tree with live states, its text, its versions, what uses it, and where a request would go. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Tabs } from '../../components/tabs.tsx';
import { useCan } from '../../shell/session.tsx';
import { useHref, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { parsed } from '../../ui/json.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, Card, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import type { Decision } from '../request/story.ts';
import { DryRun, useLatestTargets } from './dry-run.tsx';
import { ConfigEditor, Warnings } from './editor.tsx';
import { Tree } from './tree.tsx';
import { Versions } from './versions.tsx';
import type { Node, Saved } from './words.ts';

const READ = 'GET /v1/configs/{slug}';
const CHANGE = 'PUT /v1/configs/{slug}';
const DELETE = 'DELETE /v1/configs/{slug}';
const DAY_MS = 86_400_000;

export function Page() {
  const { slug = '' } = useParams<{ slug: string }>();
  const { data, error, refetch } = useApi(READ, { path: { slug } });
  return (
    <>
      <p className="crumb">
        <To path="/routing">← {t('Routing')}</To>
      </p>
      {!data && (
        <>
          <PageHead title={t('Config')} />
          {error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading what={t('the config')} />}
        </>
      )}
      {data && <Shown config={data} />}
    </>
  );
}

function Shown({ config }: { config: Saved }) {
  const can = useCan();
  const { get, set } = useUrl();
  const [ends, setEnds] = useState(false);
  const [now] = useState(() => Date.now());
  const range = {
    workspace_id: config.workspace_id,
    time_of_generation_min: new Date(now - DAY_MS).toISOString(),
    time_of_generation_max: new Date(now).toISOString(),
  };
  const shares = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    { path: { groupBy: 'virtual_key' }, query: { ...range, configs: config.slug } },
    { enabled: can('analytics.view') },
  );
  const zone = useZone();
  const latest = useLatestTargets(config);
  const [tried, setTried] = useState<Decision | null>(null);
  const targets = tried?.targets ?? latest.targets;
  const requests = new Map(
    (shares.data?.data ?? []).flatMap((row) =>
      typeof row.virtual_key === 'string' ? [[row.virtual_key, row.requests] as const] : [],
    ),
  );
  const tabs = [
    { id: 'tree', label: t('Tree') },
    { id: 'json', label: t('JSON') },
    { id: 'versions', label: t('Versions') },
  ];
  const tab = tabs.some(({ id }) => id === get('tab')) ? get('tab') : 'tree';
  return (
    <>
      <PageHead
        title={config.name}
        purpose={
          <span className="row wrap">
            <Badge tone={config.status === 'active' ? 'ok' : 'quiet'}>{t(config.status)}</Badge>
            {config.is_default === 1 && <span>{t('default of the workspace')}</span>}
            <code>{config.slug}</code>
            <To path="/requests" params={{ configs: config.slug, range: '24h', from: null, to: null }}>
              {t('Its requests')}
            </To>
          </span>
        }
        actions={
          <>
            <AsCurl call={{ operation: READ, path: { slug: config.slug } }} />
            {can('configs.delete') && (
              <button type="button" className="button stop" onClick={() => setEnds(true)}>
                {t('Delete')}
              </button>
            )}
          </>
        }
      />
      <div className="stack">
        <Warnings warnings={config.warnings ?? []} />
        <div>
          <Tabs
            label={t('Config')}
            tabs={tabs}
            selected={tab}
            onSelect={(id) => set({ tab: id === 'tree' ? null : id })}
          >
            {tab === 'tree' && (
              <>
                <Tree config={config.config as Node} live={{ targets, requests }} />
                <p className="muted states-of">
                  {tried !== null
                    ? t('Breakers as your dry run has just met them.')
                    : latest.at === null
                      ? t('No request has used it yet. A dry run shows its breakers.')
                      : t('Breakers as the newest request met them, {time}.', { time: dateTime(latest.at, zone) })}
                </p>
              </>
            )}
            {tab === 'json' && <Editor key={config.version_id} config={config} />}
            {tab === 'versions' && <Versions config={config} />}
          </Tabs>
        </div>
        <div className="columns even">
          {can('completions.write') && <DryRun config={config} onDecision={setTried} />}
          <UsedBy config={config} />
        </div>
      </div>
      {ends && <Delete config={config} onClose={() => setEnds(false)} />}
    </>
  );
}

function Editor({ config }: { config: Saved }) {
  const can = useCan();
  const before = JSON.stringify(config.config, null, 2);
  const [name, setName] = useState(config.name);
  const [text, setText] = useState(before);
  const write = useWrite(CHANGE);
  const path = { slug: config.slug };
  const body = { name: name.trim(), config: parsed(text) as { [name: string]: unknown } };
  const unsaved = text !== before || name !== config.name;
  return (
    <Form
      error={write.error}
      labels={{ name: t('Name'), config: t('Config') }}
      onSubmit={() => write.mutate({ path, body })}
    >
      <Field name="name" label={t('Name')}>
        {(control) => <input {...control} type="text" value={name} onChange={(event) => setName(event.target.value)} />}
      </Field>
      <ConfigEditor text={text} onChange={setText} />
      {can('configs.update') && (
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending || !unsaved}>
            {t('Save as a new version')}
          </button>
          <AsCurl call={{ operation: CHANGE, path, body }} />
          {!unsaved && <span className="muted">{t('Nothing has changed.')}</span>}
        </div>
      )}
    </Form>
  );
}

/** Keys that pin the config, and the workspace that gives it to its users' keys. */
function UsedBy({ config }: { config: Saved }) {
  const can = useCan();
  const keys = useApi(
    'GET /v1/api-keys',
    { query: { workspace_id: config.workspace_id, page_size: 100 } },
    { enabled: can('workspace_service_api_keys.list') || can('workspace_user_api_keys.list') },
  );
  const workspace = useApi(
    'GET /v1/admin/workspaces/{workspaceId}',
    { path: { workspaceId: config.workspace_id } },
    { enabled: can('workspaces.read') },
  );
  const isThis = (name: string | null | undefined) => name === config.slug || name === config.id;
  const pinned = (keys.data?.data ?? []).filter(({ defaults }) => isThis(defaults?.config_id));
  const given = isThis(workspace.data?.defaults?.user_api_key_config);
  const more = (keys.data?.total ?? 0) > 100;
  return (
    <Card title={t('Used by')} id="used-by">
      {(keys.error ?? workspace.error) && <Failure error={keys.error ?? workspace.error} />}
      {pinned.length === 0 && !given && (
        <p className="muted">{t('No key and no workspace names it. Requests can name it in x-gateway-config.')}</p>
      )}
      <ul className="plain-list">
        {pinned.map((key) => (
          <li key={key.id}>
            {t('API key')}{' '}
            <To path={`/keys/${key.id}`}>
              <span translate="no">{key.name}</span>
            </To>
          </li>
        ))}
        {given && (
          <li>
            {t('Keys of the users of the workspace')}{' '}
            <To path={`/workspaces/${config.workspace_id}`}>
              <span translate="no">{workspace.data?.name}</span>
            </To>
          </li>
        )}
      </ul>
      {more && <p className="muted">{t('Looked at the newest 100 keys.')}</p>}
    </Card>
  );
}

function Delete({ config, onClose }: { config: Saved; onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const [typed, setTyped] = useState('');
  const write = useWrite(DELETE);
  const input = { path: { slug: config.slug } };
  const may = typed === config.name;
  return (
    <Dialog title={t('Delete {name}', { name: config.name })} onClose={onClose}>
      <p>{t('Requests and keys that name it are refused with 400 from then on.')}</p>
      <label className="field">
        <span>{t('Type {name} to delete it', { name: config.name })}</span>
        <input type="text" autoComplete="off" value={typed} onChange={(event) => setTyped(event.target.value)} />
      </label>
      {write.error && <Failure error={write.error} />}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          aria-disabled={!may}
          onClick={() => may && write.mutate(input, { onSuccess: () => navigate(href('/routing')) })}
        >
          {t('Delete')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: DELETE, ...input }} />
      </div>
    </Dialog>
  );
}
