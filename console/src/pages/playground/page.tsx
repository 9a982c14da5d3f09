/** Playground: one request by hand, sent to one model or to two beside each other, at any time. */
import { Columns2 } from 'lucide-react';
import { type FormEvent, useEffect, useId, useState } from 'react';
import type { ChatRequest } from '../../api/client.ts';
import { useApi } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { Answer } from '../../components/answer.tsx';
import { useCan, useSession } from '../../shell/session.tsx';
import { useListedWorkspace, useOneWorkspace, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { To } from '../../ui/link.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { Empty, Failure, Loading } from '../../ui/states.tsx';
import { FIRST_MODEL, SANDBOX_MODELS } from '../models.ts';
import { useRun } from '../use-run.ts';
import { moreOf, requestOf, type Written, writtenOf } from './request.ts';

const START: Written = { system: '', prompt: 'What does an AI gateway do?', more: '' };
const SECOND = '@sandbox/echo';

export function Page() {
  const { get } = useUrl();
  const replayed = get('replay');
  if (replayed !== '') return <Replayed key={replayed} id={replayed} />;
  return <Bench start={START} model={null} kept={null} />;
}

/** Starts with the texts of a stored request, where they were kept. */
function Replayed({ id }: { id: string }) {
  const query = useListedWorkspace();
  const { data, error, refetch } = useApi('GET /v1/logs/{logId}', { path: { logId: id }, query });
  if (error) {
    return (
      <>
        <PageHead title={t('Playground')} />
        <Failure error={error} onRetry={() => void refetch()} />
      </>
    );
  }
  if (!data) return <Loading what={t('the request')} />;
  const found = writtenOf(data.request.body);
  const { virtual_key: slug, ai_model: model } = data.metrics;
  const named = found?.model ?? (slug && model ? `@${slug}/${model}` : null);
  return <Bench start={found?.written ?? START} model={named} kept={found !== null} />;
}

/** @param kept whether the texts of the replayed request were kept; null where none is replayed */
function Bench({ start, model, kept }: { start: Written; model: string | null; kept: boolean | null }) {
  const { session, end } = useSession();
  const workspace = useOneWorkspace();
  const { get, set } = useUrl();
  const [written, setWritten] = useState(start);
  const runs = [useRun(session, end), useRun(session, end)] as const;
  const two = get('panes') === '2';
  const models = [get('model') || model || FIRST_MODEL, get('other') || SECOND] as const;
  const { fault } = moreOf(written.more);
  if (workspace === null) {
    return (
      <>
        <PageHead title={t('Playground')} />
        <Empty title={t('You are in no workspace yet. Ask an admin to add you to one.')} />
      </>
    );
  }
  const running = runs.some(({ run }) => run?.phase === 'sending' || run?.phase === 'streaming');
  const empty = written.prompt.trim() === '' && !written.more.includes('messages');
  const send = () => {
    if (running || empty || fault !== null) return;
    runs[0].start(workspace.id, requestOf(models[0], written));
    if (two) runs[1].start(workspace.id, requestOf(models[1], written));
  };
  const stop = () => {
    for (const one of runs) one.stop();
  };
  return (
    <>
      <PageHead
        title={t('Playground')}
        purpose={t(
          'A request by hand, with the limits, guardrails, logs and prices of all others. It counts like them.',
        )}
        actions={
          <>
            <button
              type="button"
              className="button small"
              aria-pressed={two}
              onClick={() => set({ panes: two ? null : '2' })}
            >
              <Columns2 size={15} aria-hidden="true" /> {t('Two panes')}
            </button>
            <span data-key="curl">
              <AsCurl call={{ operation: 'POST /v1/chat/completions', body: requestOf(models[0], written) }} />
            </span>
          </>
        }
      />
      {kept === false && (
        <p className="muted">{t('The texts of that request are not stored, so only its model is filled in.')}</p>
      )}
      <Writing
        written={written}
        onChange={setWritten}
        fault={fault}
        running={running}
        why={empty ? t('Write a prompt first.') : null}
        onSend={send}
        onStop={stop}
      />
      <div className="columns even">
        <Pane title={t('Answer')} param="model" model={models[0]} state={runs[0]} baseUrl={session.base_url} />
        {two && (
          <Pane title={t('Second answer')} param="other" model={models[1]} state={runs[1]} baseUrl={session.base_url} />
        )}
      </div>
    </>
  );
}

function Writing(props: {
  written: Written;
  onChange: (next: Written) => void;
  fault: string | null;
  running: boolean;
  /** Why it cannot be sent. */
  why: string | null;
  onSend: () => void;
  onStop: () => void;
}) {
  const { written, onChange, fault, running, why, onSend, onStop } = props;
  const [tried, setTried] = useState(false);
  const area = (name: keyof Written, label: string, rows: number) => (
    <label className="field">
      <span>{label}</span>
      <textarea
        rows={rows}
        spellCheck={name !== 'more'}
        value={written[name]}
        onChange={(event) => onChange({ ...written, [name]: event.target.value })}
        onKeyDown={(event) => {
          if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) onSend();
        }}
      />
    </label>
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (running) onStop();
    else onSend();
  };
  return (
    <Card title={t('Request')} id="written">
      <form onSubmit={submit}>
        {area('system', t('System prompt'), 2)}
        {area('prompt', t('Prompt'), 3)}
        <details open={written.more !== ''}>
          <summary>{t('More parameters: tools, JSON schema, pictures, temperature')}</summary>
          {area('more', t('A JSON object that is added to the request'), 6)}
        </details>
        <div className="row actions">
          <button type="submit" className={running ? 'button stop' : 'button primary'}>
            {running ? t('Stop') : t('Run')}
          </button>
          <span className="muted keys">
            <kbd>Ctrl</kbd> <kbd>Enter</kbd>
          </span>
        </div>
        <p className="fault" role="status">
          {fault ?? (tried && !running ? why : null)}
        </p>
      </form>
    </Card>
  );
}

function Pane(props: {
  title: string;
  param: 'model' | 'other';
  model: string;
  state: ReturnType<typeof useRun>;
  baseUrl: string;
}) {
  const { title, param, model, state, baseUrl } = props;
  const { run, sent, record } = state;
  const { set } = useUrl();
  const can = useCan();
  const list = useId();
  const [typed, setTyped] = useState(model);
  useEffect(() => setTyped(model), [model]);
  return (
    <Card title={title} id={`pane-${param}`}>
      <label className="field">
        <span>{t('Model')}</span>
        <input
          type="text"
          list={list}
          autoComplete="off"
          spellCheck={false}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          onBlur={() => set({ [param]: typed.trim() || null })}
        />
      </label>
      <datalist id={list}>
        {SANDBOX_MODELS.map(({ id, label }) => (
          <option key={id} value={id}>
            {label}
          </option>
        ))}
      </datalist>
      {run && sent ? (
        <Answer run={run} record={record} request={sent as ChatRequest} baseUrl={baseUrl} />
      ) : (
        <p className="muted">{t('The answer appears here.')}</p>
      )}
      {record && can('logs.list') && (
        <p>
          <To path={`/requests/${record.id}`}>{t('Why it went this way')}</To>
        </p>
      )}
    </Card>
  );
}
