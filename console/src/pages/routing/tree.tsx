/** A config as a tree of its strategies and targets, with what each did in the last day and how its breaker is now. */
import { ArrowDown, GitBranch, Scale, Split } from 'lucide-react';
import { percent } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Badge } from '../../ui/page.tsx';
import { modeOf, type Node, type Target } from './words.ts';

interface Live {
  /** As a dry run has seen them; nothing before it was there. */
  readonly targets: readonly Target[];
  /** Requests of the last day by slug of the provider. */
  readonly requests: ReadonlyMap<string, number>;
}

export function Tree({ config, live }: { config: Node; live: Live }) {
  const root = (config.targets ?? []).length === 0;
  return (
    <ul className="tree" aria-label={t('Targets')}>
      <Branch node={config} path={root ? 'config' : 'config'} turn={null} share={null} live={live} />
    </ul>
  );
}

const ICONS = { fallback: ArrowDown, loadbalance: Scale, conditional: Split } as const;

function Branch(props: { node: Node; path: string; turn: string | null; share: string | null; live: Live }) {
  const { node, path, turn, share, live } = props;
  const targets = node.targets ?? [];
  const mode = node.strategy?.mode;
  const Icon = ICONS[mode as keyof typeof ICONS] ?? GitBranch;
  const weights = targets.reduce((sum, { weight = 1 }) => sum + weight, 0);
  return (
    <li>
      <div className="branch">
        <div className="branch-head">
          {turn !== null && <span className="turn">{turn}</span>}
          {targets.length > 0 && <Icon size={16} aria-hidden="true" />}
          <strong translate="no">{nameOf(node, path)}</strong>
          {targets.length > 0 && <span className="muted">{modeOf(node)}</span>}
          {share !== null && <span className="muted">{share}</span>}
          {targets.length === 0 && <State path={path} live={live} />}
        </div>
        <Extras node={node} />
      </div>
      {targets.length > 0 && (
        <ul className="tree">
          {targets.map((target, at) => (
            <Branch
              // biome-ignore lint/suspicious/noArrayIndexKey: the place in the config is what a target is known by
              key={at}
              node={target}
              path={`${path}.targets[${at}]`}
              turn={turnOf(node, target, at)}
              share={mode === 'loadbalance' ? percent(target.weight ?? 1, weights) : null}
              live={live}
            />
          ))}
        </ul>
      )}
    </li>
  );
}

function nameOf(node: Node, path: string): string {
  const provider = node.provider ?? node.virtual_key;
  const model = node.override_params?.model;
  const parts = [node.name, provider, typeof model === 'string' ? model : undefined].filter(
    (part) => part !== undefined,
  );
  if (parts.length > 0) return parts.join(' · ');
  if (node.passthrough) return t('the provider that the request names');
  return path === 'config' ? t('Every request') : t('inherits its provider');
}

function turnOf({ strategy }: Node, { name }: Node, at: number): string | null {
  if (strategy?.mode === 'fallback') return String(at + 1);
  if (strategy?.mode !== 'conditional') return null;
  const when = strategy.conditions?.find((one) => one.then === name);
  if (when !== undefined) return t('if {query}', { query: JSON.stringify(when.query) });
  return strategy.default === name ? t('else') : null;
}

/** Whether requests go there now, and how many did. */
function State({ path, live }: { path: string; live: Live }) {
  const target = live.targets.find((one) => one.path === path);
  if (target === undefined) return null;
  const all = [...live.requests.values()].reduce((sum, n) => sum + n, 0);
  const own = target.provider_slug === null ? undefined : live.requests.get(target.provider_slug);
  const state = target.breaker?.state;
  return (
    <>
      {state === undefined && target.breaker === null && <span className="muted">{t('no breaker')}</span>}
      {state === 'closed' && <Badge tone="ok">{t('breaker closed')}</Badge>}
      {state === 'half-open' && <Badge tone="warn">{t('breaker half open')}</Badge>}
      {state === 'open' && <Badge tone="bad">{t('breaker open')}</Badge>}
      {own !== undefined && all > 0 && (
        <span className="muted">
          {t('{part} of the last 24 hours went to {name}', {
            part: percent(own, all),
            name: `@${target.provider_slug}`,
          })}
        </span>
      )}
    </>
  );
}

function Extras({ node }: { node: Node }) {
  const extras = [
    node.retry?.attempts ? t('up to {n} retries', { n: node.retry.attempts }) : null,
    node.cache?.mode ? t('cache: {mode}', { mode: node.cache.mode }) : null,
    node.request_timeout ? t('{n} ms at most', { n: node.request_timeout }) : null,
    node.cb_config || node.strategy?.cb_config ? t('with a breaker') : null,
    node.input_guardrails?.length ? t('{n} guardrails on requests', { n: node.input_guardrails.length }) : null,
    node.output_guardrails?.length ? t('{n} guardrails on answers', { n: node.output_guardrails.length }) : null,
  ].filter((one) => one !== null);
  return extras.length === 0 ? null : <p className="muted">{extras.join(' · ')}</p>;
}
