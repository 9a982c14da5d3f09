import { type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { type ChatRequest, getRecord, type RequestRecord, type Session, tryRequest } from '../api/client.ts';
import { follow, type Run } from '../api/run.ts';
import { Answer } from '../components/answer.tsx';
import { CodeBlock, CopyLine } from '../components/copy.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';
import { Tabs } from '../components/tabs.tsx';
import { useSession } from '../shell/session.tsx';
import { FIRST_MODEL, SANDBOX_MODELS } from './models.ts';
import { snippets } from './snippets.ts';

const OTHER = 'other';
const FIRST_PROMPT = 'What does an AI gateway do?';
/** For the owner, whose machine this is; an invited user has the key that the console showed them. */
const READ_KEY = `export SLUICE_API_KEY=$(node -p "require('./data/first-run.json').workspace_api_key")`;
const SET_KEY = 'export SLUICE_API_KEY=slc_usr_…';

/** The same request, run here or copied into a program. */
export function FirstRequest({ title, children }: { title: string; children?: ReactNode }) {
  const { session, end } = useSession();
  const [workspaceId, setWorkspaceId] = useState(session.workspaces[0]?.id ?? '');
  const [choice, setChoice] = useState(FIRST_MODEL);
  const [otherModel, setOtherModel] = useState('');
  const [prompt, setPrompt] = useState(FIRST_PROMPT);
  const { run, sent, record, start, stop } = useRun(session, end);

  const model = choice === OTHER ? otherModel.trim() : choice;
  const running = run?.phase === 'sending' || run?.phase === 'streaming';
  const canRun = !running && model !== '' && prompt.trim() !== '' && workspaceId !== '';
  const send = () => {
    if (!canRun) return;
    const messages = [{ role: 'user' as const, content: prompt }];
    start(workspaceId, { model, messages, stream: true, stream_options: { include_usage: true } });
  };

  return (
    <>
      <PageHeading>{title}</PageHeading>
      <p className="lead">
        Run a request here or copy it into your code. Both use the same authentication, limits, logging and pricing. The
        sandbox models answer on this machine, without a provider account.
      </p>
      {children}
      <div className="columns">
        <section className="card" aria-labelledby="run-heading">
          <h2 id="run-heading">Run it here</h2>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              send();
            }}
          >
            {session.workspaces.length > 1 && (
              <label className="field">
                <span>Workspace</span>
                <select value={workspaceId} onChange={(event) => setWorkspaceId(event.target.value)}>
                  {session.workspaces.map((workspace) => (
                    <option key={workspace.id} value={workspace.id}>
                      {workspace.name}
                    </option>
                  ))}
                </select>
              </label>
            )}
            {session.workspaces.length === 0 && (
              <Notice tone="info" title="You are in no workspace yet">
                <p>Ask an administrator of {session.organisation.name} to add you to one.</p>
              </Notice>
            )}
            <ModelField choice={choice} onChoice={setChoice} other={otherModel} onOther={setOtherModel} />
            <label className="field">
              <span>Prompt</span>
              <textarea
                rows={3}
                value={prompt}
                onChange={(event) => setPrompt(event.target.value)}
                onKeyDown={(event) => {
                  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) send();
                }}
              />
            </label>
            <div className="row actions">
              {/* One button that changes, so that keyboard focus stays where it is. */}
              <button
                type={running ? 'button' : 'submit'}
                className={running ? 'button stop' : 'button primary'}
                disabled={!running && !canRun}
                onClick={(event) => {
                  if (!running) return;
                  // Once stopped this is a submit button again, before the browser acts on the click.
                  event.preventDefault();
                  stop();
                }}
              >
                {running ? 'Stop' : run ? 'Run again' : 'Run'}
              </button>
              <span className="muted keys">
                <kbd>Ctrl</kbd> <kbd>Enter</kbd>
              </span>
            </div>
          </form>
          {run && sent && <Answer run={run} record={record} request={sent} baseUrl={session.base_url} />}
        </section>
        <Code
          baseUrl={session.base_url}
          model={model || '@provider/model'}
          prompt={prompt}
          owner={session.user.role === 'owner'}
        />
      </div>
    </>
  );
}

function ModelField(props: {
  choice: string;
  onChoice: (id: string) => void;
  other: string;
  onOther: (model: string) => void;
}) {
  const { choice, onChoice, other, onOther } = props;
  const hint =
    choice === OTHER
      ? 'The slug of a provider of this workspace and a model of it.'
      : SANDBOX_MODELS.find((model) => model.id === choice)?.hint;
  const options = (fault: boolean) =>
    SANDBOX_MODELS.filter((model) => model.fault === fault).map((model) => (
      <option key={model.id} value={model.id}>
        {model.label} · {model.id}
      </option>
    ));
  return (
    <>
      <label className="field">
        <span>Model</span>
        <select value={choice} onChange={(event) => onChoice(event.target.value)} aria-describedby="model-hint">
          <optgroup label="Sandbox">{options(false)}</optgroup>
          <optgroup label="Sandbox, failing on purpose">{options(true)}</optgroup>
          <optgroup label="Your own providers">
            <option value={OTHER}>Another model…</option>
          </optgroup>
        </select>
      </label>
      {choice === OTHER && (
        <label className="field">
          <span>Provider and model</span>
          <input
            type="text"
            value={other}
            placeholder="@openai-prod/gpt-5-mini"
            spellCheck={false}
            autoComplete="off"
            onChange={(event) => onOther(event.target.value)}
          />
        </label>
      )}
      <p className="muted hint" id="model-hint">
        {hint}
      </p>
    </>
  );
}

interface CodeProps {
  baseUrl: string;
  model: string;
  prompt: string;
  owner: boolean;
}

function Code({ baseUrl, model, prompt, owner }: CodeProps) {
  const all = useMemo(() => snippets({ baseUrl, model, prompt }), [baseUrl, model, prompt]);
  const [selected, setSelected] = useState('curl');
  const snippet = all.find((one) => one.id === selected) ?? all[0];
  return (
    <section className="card" aria-labelledby="code-heading">
      <h2 id="code-heading">From your own program</h2>
      <CopyLine label="Base URL" value={baseUrl} />
      {owner ? (
        <>
          <h3>1. Read your key</h3>
          <p className="muted">
            The first start wrote <code>workspace_api_key</code> to <code>first-run.json</code> in the data folder. In
            the folder of Sluice:
          </p>
          <CodeBlock code={READ_KEY} what="the command that reads the key" />
        </>
      ) : (
        <>
          <h3>1. Set your key</h3>
          <p className="muted">
            The API key that you were shown when you accepted your invite, or one that an administrator of the workspace
            makes for you:
          </p>
          <CodeBlock code={SET_KEY} what="the command that sets the key" />
        </>
      )}
      <h3>2. Send the request</h3>
      <Tabs label="Language" tabs={all} selected={selected} onSelect={setSelected}>
        {snippet?.install && (
          <p className="muted">
            Needs <code>{snippet.install}</code>
          </p>
        )}
        {snippet && <CodeBlock code={snippet.code} what={`the request for ${snippet.label}`} />}
      </Tabs>
    </section>
  );
}

/** One request at a time: its progress, what was sent, and the stored record once the gateway has it. */
function useRun(session: Session, onSignedOut: () => void) {
  const [run, setRun] = useState<Run | null>(null);
  const [sent, setSent] = useState<ChatRequest | null>(null);
  const [record, setRecord] = useState<RequestRecord | null>(null);
  const current = useRef<AbortController | null>(null);
  // Leaving the page ends the request and the wait for its record.
  useEffect(() => () => current.current?.abort(), []);

  const start = (workspaceId: string, request: ChatRequest) => {
    current.current?.abort();
    const abort = new AbortController();
    current.current = abort;
    setSent(request);
    setRecord(null);
    const follows = follow(
      () => tryRequest(session, workspaceId, request, abort.signal),
      (next) => {
        if (current.current === abort) setRun(next);
      },
    );
    void follows.then(async (end) => {
      if (current.current !== abort) return;
      // Without a trace id the answer is the console's own and not the data plane's.
      if (end.status === 401 && end.traceId === null) return onSignedOut();
      const waiting = new AbortController();
      current.current = waiting;
      const found = end.traceId === null ? null : await waitForRecord(end.traceId, waiting.signal);
      if (current.current === waiting) setRecord(found);
    });
  };
  const stop = () => current.current?.abort();
  return { run, sent, record, start, stop };
}

/** The stored record of a request; null when it has not arrived after about six seconds. */
async function waitForRecord(traceId: string, signal: AbortSignal): Promise<RequestRecord | null> {
  for (let wait = 100; wait <= 3200 && !signal.aborted; wait *= 2) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      const record = await getRecord(traceId, signal);
      if (record) return record;
    } catch {
      // The record is an extra: the answer stands without it.
      return null;
    }
  }
  return null;
}
