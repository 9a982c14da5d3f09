import { type ReactNode, useMemo, useState } from 'react';
import { t } from '../app/i18n.ts';
import { Answer } from '../components/answer.tsx';
import { CodeBlock, CopyLine } from '../components/copy.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';
import { Tabs } from '../components/tabs.tsx';
import { useSession } from '../shell/session.tsx';
import { FIRST_MODEL, SANDBOX_MODELS } from './models.ts';
import { snippets } from './snippets.ts';
import { useRun } from './use-run.ts';

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
        {t(
          'Run a request here or copy it into your code. Both use the same authentication, limits, logging and pricing. The sandbox models answer on this machine, without a provider account.',
        )}
      </p>
      {children}
      <div className="columns">
        <section className="card" aria-labelledby="run-heading">
          <h2 id="run-heading">{t('Run it here')}</h2>
          <form
            onSubmit={(event) => {
              event.preventDefault();
              send();
            }}
          >
            {session.workspaces.length > 1 && (
              <label className="field">
                <span>{t('Workspace')}</span>
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
              <Notice tone="info" title={t('You are in no workspace yet')}>
                <p>{t('Ask an administrator of {name} to add you to one.', { name: session.organisation.name })}</p>
              </Notice>
            )}
            <ModelField choice={choice} onChoice={setChoice} other={otherModel} onOther={setOtherModel} />
            <label className="field">
              <span>{t('Prompt')}</span>
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
                {running ? t('Stop') : run ? t('Run again') : t('Run')}
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
      ? t('The slug of a provider of this workspace and a model of it.')
      : t(SANDBOX_MODELS.find((model) => model.id === choice)?.hint ?? '');
  const options = (fault: boolean) =>
    SANDBOX_MODELS.filter((model) => model.fault === fault).map((model) => (
      <option key={model.id} value={model.id}>
        {model.label} · {model.id}
      </option>
    ));
  return (
    <>
      <label className="field">
        <span>{t('Model')}</span>
        <select value={choice} onChange={(event) => onChoice(event.target.value)} aria-describedby="model-hint">
          <optgroup label={t('Sandbox')}>{options(false)}</optgroup>
          <optgroup label={t('Sandbox, failing on purpose')}>{options(true)}</optgroup>
          <optgroup label={t('Your own providers')}>
            <option value={OTHER}>{t('Another model…')}</option>
          </optgroup>
        </select>
      </label>
      {choice === OTHER && (
        <label className="field">
          <span>{t('Provider and model')}</span>
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
      <h2 id="code-heading">{t('From your own program')}</h2>
      <CopyLine label={t('Base URL')} value={baseUrl} />
      {owner ? (
        <>
          <h3>{t('1. Read your key')}</h3>
          <p className="muted">
            {t('The first start wrote your key to first-run.json in the data folder. In the folder of Sluice:')}
          </p>
          <CodeBlock code={READ_KEY} what={t('the command that reads the key')} />
        </>
      ) : (
        <>
          <h3>{t('1. Set your key')}</h3>
          <p className="muted">
            {t(
              'The API key that you were shown when you accepted your invite, or one that an administrator of the workspace makes for you:',
            )}
          </p>
          <CodeBlock code={SET_KEY} what={t('the command that sets the key')} />
        </>
      )}
      <h3>{t('2. Send the request')}</h3>
      <Tabs label={t('Language')} tabs={all} selected={selected} onSelect={setSelected}>
        {snippet?.install && (
          <p className="muted">
            {t('Needs')} <code>{snippet.install}</code>
          </p>
        )}
        {snippet && (
          <CodeBlock code={snippet.code} what={t('the request for {language}', { language: snippet.label })} />
        )}
      </Tabs>
    </section>
  );
}
