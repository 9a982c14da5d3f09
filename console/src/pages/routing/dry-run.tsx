/** Where a request would go under a config, without a call of a provider. */
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { answer } from '../../api/client.ts';
import { useApi } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan, useSession } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Json } from '../../ui/json.tsx';
import { Badge, Card } from '../../ui/page.tsx';
import { Failure } from '../../ui/states.tsx';
import type { Decision } from '../request/story.ts';
import type { Saved } from './words.ts';

interface Sample {
  readonly model: string;
  readonly text: string;
  /** JSON of an object of texts, or nothing. */
  readonly metadata: string;
}

const SAMPLE: Sample = { model: 'gpt-4o-mini', text: 'Hello', metadata: '' };

const headersOf = (slug: string, { metadata }: Sample) => ({
  'x-gateway-config': slug,
  'x-gateway-dry-run': 'true',
  ...(metadata.trim() === '' ? {} : { 'x-gateway-metadata': metadata.trim() }),
});
const requestOf = ({ model, text }: Sample) => ({ model, messages: [{ role: 'user', content: text }] });

function useDryRun({ slug, workspace_id }: Saved) {
  const { session } = useSession();
  return async (sample: Sample) =>
    (await answer(
      'POST /console/api/try',
      { body: { workspace_id, request: requestOf(sample) } },
      { csrf: session.csrf_token, headers: headersOf(slug, sample) },
    )) as Decision;
}

/** The targets as the newest request of the config has met them, and when; nothing before the first request. */
export function useLatestTargets(config: Saved): { readonly targets: Decision['targets']; readonly at: string | null } {
  const can = useCan();
  const enabled = can('logs.list') && can('logs.view');
  const place = { workspace_id: config.workspace_id };
  const newest = useApi(
    'GET /v1/logs',
    { query: { ...place, configs: config.slug, limit: 1 } },
    { enabled, refetchInterval: 15_000 },
  );
  const row = newest.data?.data[0];
  const decision = useApi(
    'GET /v1/logs/{logId}/decision',
    { path: { logId: row?.id ?? '' }, query: place },
    { enabled: enabled && row !== undefined },
  );
  return row === undefined || decision.data === undefined
    ? { targets: [], at: null }
    : { targets: decision.data.targets, at: row.created_at };
}

/** @param onDecision gets what a run has seen */
export function DryRun({ config, onDecision }: { config: Saved; onDecision: (decision: Decision) => void }) {
  const [sample, setSample] = useState(SAMPLE);
  const run = useDryRun(config);
  const tried = useMutation<Decision, Error, Sample>({ mutationFn: run, onSuccess: onDecision });
  const field = (name: keyof Sample, label: string, help?: string) => (
    <label className="field">
      <span>{label}</span>
      <input
        type="text"
        spellCheck={false}
        value={sample[name]}
        onChange={(event) => setSample({ ...sample, [name]: event.target.value })}
      />
      {help !== undefined && <span className="muted">{help}</span>}
    </label>
  );
  return (
    <Card
      title={t('Dry run')}
      id="dry-run"
      actions={
        <AsCurl
          call={{
            operation: 'POST /v1/chat/completions',
            body: requestOf(sample),
            headers: headersOf(config.slug, sample),
          }}
        />
      }
    >
      <form
        className="stack"
        onSubmit={(event) => {
          event.preventDefault();
          tried.mutate(sample);
        }}
      >
        <p className="muted">
          {t('No provider is called, and nothing is charged. It leaves a record, marked as a dry run.')}
        </p>
        <div className="pair">
          {field('model', t('Model'))}
          {field('metadata', t('Metadata (optional)'), t('For example {"plan":"paid"}'))}
        </div>
        {field('text', t('Text'))}
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={tried.isPending}>
            {t('Run')}
          </button>
        </div>
      </form>
      {tried.error && <Failure error={tried.error} />}
      {tried.data && <Outcome decision={tried.data} />}
    </Card>
  );
}

const WHY: Readonly<Record<string, string>> = {
  breaker_open: 'its breaker is open',
  not_drawn: 'another target was drawn',
  condition_not_met: 'its condition was not met',
};

function Outcome({ decision }: { decision: Decision }) {
  return (
    <div className="stack result" role="status">
      <ul className="plain-list">
        {decision.targets.map((target) => (
          <li key={target.path} className="row wrap">
            {target.order === null ? (
              <Badge tone="quiet">{t('not tried')}</Badge>
            ) : (
              <Badge tone={target.order === 1 ? 'ok' : 'warn'}>{t('turn {n}', { n: target.order })}</Badge>
            )}
            <span translate="no">
              {target.provider_slug === null ? (target.provider ?? target.path) : `@${target.provider_slug}`}
              {target.model === null ? '' : `/${target.model}`}
            </span>
            {target.why !== null && <span className="muted">{t(WHY[target.why] ?? target.why)}</span>}
          </li>
        ))}
      </ul>
      {decision.route.map(({ path, why }) => (
        <p key={path} className="muted">
          <code>{path}</code> <span translate="no">{why}</span>
        </p>
      ))}
      <details className="more">
        <summary>{t('The whole decision')}</summary>
        <Json value={decision} what={t('the decision')} />
      </details>
    </div>
  );
}
