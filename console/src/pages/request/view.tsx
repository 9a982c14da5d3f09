/** One request, on a page or beside its list: what happened, when, and what it cost. */
import { ApiError } from '../../api/client.ts';
import { useApi } from '../../api/queries.ts';
import { count, dateTime, dollars, duration, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { CopyButton } from '../../components/copy.tsx';
import { useCan } from '../../shell/session.tsx';
import { useListedWorkspace, useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Json } from '../../ui/json.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, Card, Facts, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { Outcome } from '../requests/outcome.tsx';
import { Bodies } from './bodies.tsx';
import { type Decision, story } from './story.ts';
import { Waterfall } from './waterfall.tsx';

/** A record is stored a moment after its answer. */
const ASK_AGAIN_MS = 1_000;
const PATIENCE_MS = 6_000;

/** `sheet`: beside a list, which names it. */
export function RequestView({ id, sheet = false }: { id: string; sheet?: boolean }) {
  const query = useListedWorkspace();
  const input = { path: { logId: id }, query };
  const { data, error, refetch, fetchStatus } = useApi('GET /v1/logs/{logId}/decision', input, {
    refetchInterval: isNew(id) ? ASK_AGAIN_MS : false,
  });
  if (data) return <Shown id={id} decision={data} sheet={sheet} query={query} />;
  const missing = error instanceof ApiError && error.status === 404;
  return (
    <>
      {!sheet && <PageHead title={t('Request')} purpose={<code>{id}</code>} />}
      {error === null && fetchStatus !== 'idle' && <Loading what={t('the request')} />}
      {missing && isNew(id) && <p role="status">{t('Recorded a moment ago, not stored yet. Looking again…')}</p>}
      {error !== null && !(missing && isNew(id)) && <Failure error={error} onRetry={() => void refetch()} />}
    </>
  );
}

/** Ids begin with their time in milliseconds (RFC 9562, version 7). */
function isNew(id: string): boolean {
  const made = Number.parseInt(id.replace('-', '').slice(0, 12), 16);
  return Math.abs(Date.now() - made) < PATIENCE_MS;
}

function Shown(props: { id: string; decision: Decision; sheet: boolean; query: { workspace_id?: string } }) {
  const { id, decision, sheet, query } = props;
  const can = useCan();
  const { get } = useUrl();
  const zone = useZone();
  const { model, target, outcome, attempts } = decision;
  const asked = model.requested ?? decision.operation;
  const answered = target ? `${target.provider_slug ?? target.provider}/${model.answered ?? target.model ?? ''}` : null;
  const title =
    answered === null || answered.endsWith(`/${asked}`)
      ? `${decision.operation} · ${answered ?? asked}`
      : `${decision.operation} · ${asked} → ${answered}`;
  const purpose = (
    <span className="row wrap">
      <Outcome outcome={outcome.outcome} status={outcome.status} />
      {decision.dry_run && <Badge tone="quiet">{t('Dry run')}</Badge>}
      <span>{decision.cost_micros === null ? t('no known price') : dollars(decision.cost_micros)}</span>
      <span>{duration(outcome.latency_ms)}</span>
      <span>
        {dateTime(decision.created_at, zone)} {zoneName(zone)}
      </span>
    </span>
  );
  const page = new URL(`/console/requests/${id}`, location.origin);
  if (get('ws')) page.searchParams.set('ws', get('ws'));
  const actions = (
    <>
      <span data-key="copy-id">
        <CopyButton text={id} what={t('of the request')} label={t('Copy id')} />
      </span>
      <CopyButton text={page.href} what={t('to this page')} label={t('Copy link')} />
      {can('completions.write') && (
        <To path="/playground" params={{ replay: id }} className="button small">
          {t('Replay')}
        </To>
      )}
      <span data-key="curl">
        <AsCurl call={{ operation: 'GET /v1/logs/{logId}/decision', path: { logId: id }, query }} />
      </span>
    </>
  );
  return (
    <>
      {sheet ? (
        <div className="sheet-title">
          <p className="sheet-name" translate="no">
            {title}
          </p>
          {purpose}
          <div className="row wrap">{actions}</div>
        </div>
      ) : (
        <PageHead title={title} purpose={purpose} actions={actions} />
      )}
      <div className="stack">
        <Card title={t('Story')} id="story">
          <p className="story">{story(decision).join(' ')}</p>
          {outcome.error_message && <p translate="no">{outcome.error_message}</p>}
        </Card>
        {attempts.length > 0 && (
          <Card title={t('Waterfall')} id="waterfall">
            <Waterfall decision={decision} />
          </Card>
        )}
        <div className="quarters">
          <Money decision={decision} />
          <Tokens decision={decision} />
          <Limits decision={decision} />
          <Guardrails decision={decision} />
        </div>
        <Changed decision={decision} />
        <Bodies id={id} query={query} />
        <details>
          <summary>{t('The decision as JSON')}</summary>
          <Json value={decision} what={t('the decision')} />
        </details>
      </div>
    </>
  );
}

function Money({ decision: { price, usage, cost_micros } }: { decision: Decision }) {
  const rows = Object.entries(price?.rates ?? {}).flatMap(([kind, rate]) => {
    const used = Number(usage?.[kind] ?? 0);
    return used > 0 ? [{ kind, rate, used }] : [];
  });
  return (
    <Card title={t('Money')} id="money">
      {price === null ? (
        <p className="muted">{t('No price is known for this model.')}</p>
      ) : (
        <>
          {rows.map(({ kind, rate, used }) => (
            <p key={kind}>
              {count(used)} {kind} × ${rate}/M
            </p>
          ))}
          <p>
            <strong>= {cost_micros === null ? '–' : dollars(cost_micros)}</strong>
          </p>
          <p className="muted">{t('Price from: {source}', { source: price.source })}</p>
        </>
      )}
    </Card>
  );
}

function Tokens({ decision: { usage } }: { decision: Decision }) {
  const used = Object.entries(usage ?? {}).filter(([, value]) => typeof value === 'number' && value > 0);
  return (
    <Card title={t('Tokens')} id="tokens">
      {used.length === 0 ? (
        <p className="muted">{t('No tokens were used.')}</p>
      ) : (
        <Facts facts={used.map(([kind, value]) => [kind, count(Number(value))] as const)} />
      )}
    </Card>
  );
}

function Limits({ decision: { limits, rules } }: { decision: Decision }) {
  const own = rules.filter(({ kind }) => /limit|policy|budget/.test(kind));
  return (
    <Card title={t('Limits')} id="limits">
      {own.length === 0 && limits === null && <p className="muted">{t('No limit applied to this request.')}</p>}
      {own.map(({ id, kind, outcome }) => (
        <p key={id}>
          <Badge tone={outcome === 'refused' || outcome === 'failed' ? 'bad' : 'ok'}>{outcome}</Badge> {kind}{' '}
          <code>{id}</code>
        </p>
      ))}
      {limits !== null && (
        <details>
          <summary>{t('What was counted')}</summary>
          <Json value={limits} what={t('the limits')} />
        </details>
      )}
    </Card>
  );
}

function Guardrails({ decision: { guardrails } }: { decision: Decision }) {
  const ran = [...guardrails.input, ...guardrails.output];
  return (
    <Card title={t('Guardrails')} id="guardrails">
      {ran.length === 0 ? (
        <p className="muted">{t('No guardrail ran.')}</p>
      ) : (
        <ul className="plain-list">
          {ran.map((name) => (
            <li key={name}>
              <code>{name}</code>
            </li>
          ))}
        </ul>
      )}
      {guardrails.verdicts.length > 0 && (
        <details>
          <summary>{t('Verdicts')}</summary>
          <Json value={guardrails.verdicts} what={t('the verdicts')} />
        </details>
      )}
    </Card>
  );
}

function Changed({ decision: { fields_changed: changed, route } }: { decision: Decision }) {
  const facts = [
    [t('Overridden'), changed?.overridden],
    [t('Added'), changed?.added],
    [t('Dropped'), changed?.dropped],
  ] as const;
  const some = facts.filter(([, names]) => names && names.length > 0);
  if (some.length === 0 && route.length === 0) return null;
  return (
    <Card title={t('Changed on the way, and why it went there')} id="changed">
      {some.length > 0 && (
        <Facts facts={some.map(([name, names]) => [name, <code key={name}>{names?.join(', ')}</code>] as const)} />
      )}
      <ul className="plain-list">
        {route.map(({ path, mode, chosen, why }) => (
          <li key={path} translate="no">
            <code>{path}</code> {mode} → <code>{chosen}</code>: {why}
          </li>
        ))}
      </ul>
    </Card>
  );
}
