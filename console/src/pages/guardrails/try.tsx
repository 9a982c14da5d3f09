/** A text put before a guardrail: the verdict, what was found where, and the text as it would go on. */
import { useState } from 'react';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Badge, Card } from '../../ui/page.tsx';
import { Failure } from '../../ui/states.tsx';
import { checkName, type Detail } from './words.ts';

const INVOKE = 'POST /v1/guardrails/{guardrailId}/invoke';

interface Found {
  readonly start: number;
  readonly end: number;
  readonly kind: string;
}

/** @param unsaved the form has changes that are not judged yet */
export function Try({ guardrail, unsaved }: { guardrail: Detail; unsaved: boolean }) {
  const workspace = useOneWorkspace();
  const [phase, setPhase] = useState<'input' | 'output'>('input');
  const [text, setText] = useState('');
  const [model, setModel] = useState('');
  const invoke = useWrite(INVOKE);
  const input = {
    path: { guardrailId: guardrail.slug },
    body: {
      phase,
      text,
      ...(model.trim() === '' ? {} : { model: model.trim() }),
      ...(workspace === null ? {} : { workspace_id: workspace.id }),
    },
  };
  const byModel = guardrail.checks.some(({ id }) => id.startsWith('default.model'));
  return (
    <Card title={t('Try')} id="try" actions={<AsCurl call={{ operation: INVOKE, ...input }} />}>
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          if (text !== '') invoke.mutate(input);
        }}
      >
        <p className="muted">
          {unsaved
            ? t('This tries the guardrail as it is saved, without your last changes.')
            : t('No model is called, and nothing is recorded.')}
        </p>
        <label className="field">
          <span>{t('Text')}</span>
          <textarea rows={5} value={text} onChange={(event) => setText(event.target.value)} />
        </label>
        {byModel && (
          <label className="field">
            <span>{t('Model')}</span>
            <input type="text" value={model} onChange={(event) => setModel(event.target.value)} />
          </label>
        )}
        <div className="row wrap">
          <label className="inline-field">
            <span>{t('As')}</span>
            <select value={phase} onChange={(event) => setPhase(event.target.value as typeof phase)}>
              <option value="input">{t('a request')}</option>
              <option value="output">{t('an answer')}</option>
            </select>
          </label>
          <button type="submit" className="button primary" aria-disabled={invoke.isPending || text === ''}>
            {t('Try it')}
          </button>
          {text === '' && <span className="muted">{t('Write a text first.')}</span>}
        </div>
      </form>
      {invoke.error && <Failure error={invoke.error} />}
      {invoke.data && <Result result={invoke.data} text={String(invoke.variables?.body?.text ?? '')} />}
    </Card>
  );
}

type Answer = NonNullable<ReturnType<typeof useWrite<typeof INVOKE>>['data']>;

function Result({ result, text }: { result: Answer; text: string }) {
  const found = result.checks.flatMap((check) => (Array.isArray(check.excerpts) ? (check.excerpts as Found[]) : []));
  const changed = (result.transformed_data as { text?: unknown } | null)?.text;
  return (
    <div className="stack result" role="status">
      <p className="row wrap">
        {result.skipped ? (
          <Badge tone="quiet">{t('No check of it judges this')}</Badge>
        ) : result.verdict ? (
          <Badge tone="ok">{result.transformed ? t('Passes, changed') : t('Passes')}</Badge>
        ) : result.deny ? (
          <Badge tone="bad">{t('Refused with 446')}</Badge>
        ) : (
          <Badge tone="warn">{t('Passes with status 246')}</Badge>
        )}
      </p>
      {found.length > 0 && <Marked text={text} found={found} />}
      {typeof changed === 'string' && (
        <div>
          <h3>{t('What goes on')}</h3>
          <p className="tried" translate="no">
            {changed}
          </p>
        </div>
      )}
      <ul className="plain-list">
        {result.checks.map((check, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a guardrail may have the same check twice
          <li key={at} className="row wrap">
            <Badge tone={check.verdict ? 'ok' : 'bad'}>{checkName(check.id)}</Badge>
            <span className="muted" translate="no">
              {explanationOf(check)}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}

function explanationOf({ data, error }: Readonly<Record<string, unknown>>): string {
  const said = (data as { explanation?: unknown } | null | undefined)?.explanation;
  if (typeof said === 'string') return said;
  return typeof error === 'string' ? error : ((error as { message?: string } | null)?.message ?? '');
}

/** The text with marks on what was found. */
function Marked({ text, found }: { text: string; found: readonly Found[] }) {
  const sorted = [...found].sort((a, b) => a.start - b.start);
  const parts: { readonly at: number; readonly text: string; readonly kind: string | null }[] = [];
  let from = 0;
  for (const { start, end, kind } of sorted) {
    if (start < from || end > text.length) continue;
    if (start > from) parts.push({ at: from, text: text.slice(from, start), kind: null });
    parts.push({ at: start, text: text.slice(start, end), kind });
    from = end;
  }
  if (from < text.length) parts.push({ at: from, text: text.slice(from), kind: null });
  return (
    <p className="tried" translate="no">
      {parts.map(({ at, text: part, kind }) =>
        kind === null ? (
          <span key={at}>{part}</span>
        ) : (
          <mark key={at}>
            {part}
            <small>{kind}</small>
          </mark>
        ),
      )}
    </p>
  );
}
