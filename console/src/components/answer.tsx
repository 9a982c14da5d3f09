import type { ReactNode } from 'react';
import type { ChatRequest, RequestRecord } from '../api/client.ts';
import type { Run, RunError } from '../api/run.ts';
import { dollars, duration, statusText } from '../app/format.ts';
import { t } from '../app/i18n.ts';
import { CodeBlock, CopyLine } from './copy.tsx';
import { Notice } from './notice.tsx';

/** A request's progress and result. `record` arrives a moment after the answer. */
export function Answer(props: { run: Run; record: RequestRecord | null; request: ChatRequest; baseUrl: string }) {
  const { run, record, request, baseUrl } = props;
  const ended = run.phase === 'done' || run.phase === 'stopped' || run.phase === 'failed';
  return (
    <div className="result">
      <p className="visually-hidden" role="status">
        {announce(run)}
      </p>
      <div className={`answer ${run.phase}`} aria-busy={!ended} data-testid="answer">
        {run.text}
        {!ended && <span className="caret" aria-hidden="true" />}
        {ended && run.text === '' && !run.error && <span className="muted">{t('The answer is empty.')}</span>}
      </div>
      {run.phase === 'stopped' && (
        <Notice tone="info" title={t('Stopped')}>
          <p>{t('The gateway ended the provider’s call too. Its tokens until then are counted.')}</p>
        </Notice>
      )}
      {run.error && <Failure error={run.error} partial={run.text !== ''} />}
      <dl className="metrics" data-testid="metrics">
        <Metric name={t('Status')}>{run.status === null ? '–' : statusText(run.status)}</Metric>
        <Metric name={t('First token')}>{run.firstTokenMs === null ? '–' : duration(run.firstTokenMs)}</Metric>
        <Metric name={t('Total')}>{run.totalMs === null ? '–' : duration(run.totalMs)}</Metric>
        <Metric name={t('Tokens in / out')}>
          {run.usage ? `${run.usage.prompt_tokens ?? 0} / ${run.usage.completion_tokens ?? 0}` : '–'}
        </Metric>
        <Metric name={t('Cost')}>{cost(record)}</Metric>
      </dl>
      {ended && (
        <>
          {run.traceId && <CopyLine label={t('Trace id')} value={run.traceId} />}
          {(record?.id ?? run.requestId) && (
            <CopyLine label={t('Request id')} value={record?.id ?? run.requestId ?? ''} />
          )}
          <details>
            <summary>{t('Request as sent')}</summary>
            <CodeBlock
              code={`POST ${baseUrl}/chat/completions\ncontent-type: application/json\n\n${JSON.stringify(request, null, 2)}`}
              what={t('the request')}
            />
          </details>
          {run.status !== null && (
            <details>
              <summary>{t('Answer as received')}</summary>
              <CodeBlock
                code={`HTTP ${run.status}\n${run.headers.map(([name, value]) => `${name}: ${value}`).join('\n')}\n\n${run.raw}`}
                what={t('the answer')}
              />
            </details>
          )}
        </>
      )}
    </div>
  );
}

function Metric({ name, children }: { name: string; children: ReactNode }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function Failure({ error, partial }: { error: RunError; partial: boolean }) {
  const title = error.status ? statusText(error.status) : partial ? t('The answer broke off') : t('No answer');
  const what = [error.type, error.code].filter((value) => value !== undefined);
  return (
    <Notice tone="bad" title={title}>
      <p>{error.message}</p>
      {error.retryAfter && <p>{t('Try again in {seconds} s.', { seconds: error.retryAfter })}</p>}
      {what.length > 0 && (
        <p className="muted">
          <code>{what.join(' · ')}</code>
        </p>
      )}
    </Notice>
  );
}

function cost(record: RequestRecord | null): string {
  if (!record) return '–';
  return record.cost_micros === null ? t('no known price') : dollars(record.cost_micros);
}

/** For screen readers: stages only, because reading out every token would drown everything else. */
function announce(run: Run): string {
  if (run.phase === 'sending') return t('Request sent');
  if (run.phase === 'streaming') return t('The answer is arriving');
  if (run.phase === 'stopped') return t('Stopped');
  if (run.phase === 'failed') return '';
  return t('Answer complete: {text}', { text: run.text });
}
