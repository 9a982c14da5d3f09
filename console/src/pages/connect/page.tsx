/** Connect: the exact settings of each client, a key for it, and whether its first request has come. */
import { CircleCheck, LoaderCircle } from 'lucide-react';
import { useState } from 'react';
import { useApi } from '../../api/queries.ts';
import { dateTime, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { CodeBlock, CopyLine } from '../../components/copy.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { useCan, useSession } from '../../shell/session.tsx';
import { useOneWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { To } from '../../ui/link.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { Empty, Failure } from '../../ui/states.tsx';
import { NewKey } from '../keys/new-key.tsx';
import { shellWord } from '../snippets.ts';
import { clients } from './clients.ts';

const MODEL = '@sandbox/echo';
const PROMPT = 'Hello from my first request';
const LOOK_AGAIN_MS = 2_000;

export function Page() {
  const { session } = useSession();
  const workspace = useOneWorkspace();
  const can = useCan();
  const { get, set } = useUrl();
  const [making, setMaking] = useState(false);
  const [key, setKey] = useState<{ id: string; key: string } | null>(null);
  const [model, setModel] = useState(MODEL);
  const all = clients({ baseUrl: session.base_url, model: model.trim() || MODEL, prompt: PROMPT });
  const chosen = all.find(({ id }) => id === get('client')) ?? all[0];
  if (workspace === null || !chosen) {
    return (
      <>
        <PageHead title={t('Connect')} />
        <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />
      </>
    );
  }
  return (
    <>
      <PageHead
        title={t('Connect')}
        purpose={t('Point your program at Sluice: an address, a key, and what to paste.')}
      />
      <div className="stack">
        <Card title={t('1. A key')} id="key">
          {key === null ? (
            <>
              <p className="muted">
                {t('All that follows reads the key from the variable SLUICE_API_KEY. Set it to a key of yours:')}
              </p>
              <CodeBlock code="export SLUICE_API_KEY=slc_…" what={t('the command that sets the key')} />
              {can('workspace_user_api_keys.create') ? (
                <div className="row">
                  <button type="button" className="button" onClick={() => setMaking(true)}>
                    {t('Make a key')}
                  </button>
                </div>
              ) : (
                <p className="muted">
                  {t('An admin of {workspace} can make you a key.', { workspace: workspace.name })}
                </p>
              )}
            </>
          ) : (
            <CodeBlock
              code={`export SLUICE_API_KEY=${shellWord(key.key)}`}
              what={t('the command that sets your new key')}
            />
          )}
        </Card>
        <Card title={t('2. Your client')} id="client">
          <CopyLine label={t('Base URL')} value={session.base_url} />
          <label className="field">
            <span>{t('Model')}</span>
            <input
              type="text"
              autoComplete="off"
              spellCheck={false}
              value={model}
              onChange={(event) => setModel(event.target.value)}
            />
          </label>
          <Tabs label={t('Client')} tabs={all} selected={chosen.id} onSelect={(id) => set({ client: id })}>
            {chosen.install !== null && (
              <p className="muted">
                {t('Needs')} <code>{chosen.install}</code>
              </p>
            )}
            {chosen.note !== null && <p className="muted">{t(chosen.note)}</p>}
            <CodeBlock code={chosen.code} what={t('the settings of {client}', { client: chosen.label })} />
          </Tabs>
        </Card>
        {can('logs.list') && <Received workspaceId={workspace.id} keyId={key?.id ?? null} />}
      </div>
      {making && <NewKey onMade={setKey} onClose={() => setMaking(false)} />}
    </>
  );
}

/** Looks for a request since this page was opened; of the new key where one was made here. */
function Received({ workspaceId, keyId }: { workspaceId: string; keyId: string | null }) {
  const zone = useZone();
  const [since] = useState(() => new Date().toISOString());
  const { data, error, refetch } = useApi(
    'GET /v1/logs',
    {
      query: {
        workspace_id: workspaceId,
        time_of_generation_min: since,
        // A day: the page may stay open for long.
        time_of_generation_max: new Date(Date.parse(since) + 86_400_000).toISOString(),
        limit: 1,
        ...(keyId === null ? {} : { api_key_ids: keyId }),
      },
    },
    { refetchInterval: LOOK_AGAIN_MS },
  );
  const found = data?.data[0];
  return (
    <Card title={t('3. The first request')} id="received">
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      <p role="status" className="row">
        {found ? (
          <>
            <CircleCheck size={18} aria-hidden="true" />
            <span>
              {t('Received at {time} {zone}, with the status {status}.', {
                time: dateTime(found.created_at, zone),
                zone: zoneName(zone),
                status: String(found.status ?? '–'),
              })}{' '}
              <To path={`/requests/${found.id}`}>{t('See what happened')}</To>
            </span>
          </>
        ) : (
          <>
            <LoaderCircle size={18} aria-hidden="true" />
            <span>
              {keyId === null
                ? t('Waiting for a request to this workspace…')
                : t('Waiting for a request with your new key…')}
            </span>
          </>
        )}
      </p>
    </Card>
  );
}
