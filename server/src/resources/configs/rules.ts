/** What one field of a config demands of another (10.2, 10.8). All functions only collect issues. */
import { readChecks } from '../../guardrails/catalog.ts';
import type { Phase } from '../../guardrails/check.ts';
import { CHECKS } from '../../guardrails/checks/index.ts';
import { inlineChecks } from '../../guardrails/compile.ts';
import { METADATA_HEADERS } from '../../kernel/header-names.ts';
import type { Steps } from '../../kernel/turns.ts';
import { providerById } from '../../providers/catalog.ts';
import type { CheckHost } from '../body-fields.ts';
import { urlFaults } from '../guardrails/secrets.ts';
import { formatPath, type Issue } from '../issues.ts';
import { checkQuery, keyProblem, patternCosts } from './conditions.ts';
import { ACCOUNT_KEYS, accountValue, type Config, GUARDRAIL_LISTS, HOOK_LISTS, SECRET_KEYS } from './structure.ts';

type Path = (string | number)[];

const MAX_ROOT_TARGETS = 100;
const MAX_CONDITIONAL_TARGETS = 1000;
const MAX_NESTED_TARGETS = 50;
/** Of all conditions (`patternCost`): a thousand short patterns, and about a tenth of a second. */
const MAX_PATTERN_COST = 25_000;

const HEADER_NAME = /^[a-zA-Z0-9!#$%&'*+.^_`|~-]+$/;
const metadataHeaders: ReadonlySet<string> = new Set(METADATA_HEADERS);

/** A check id: family and check, such as `default.regexMatch`. */
const CHECK_ID = /^[a-zA-Z][a-zA-Z0-9_-]*(?:\.[a-zA-Z0-9_-]+)+$/;

/** What each list judges. */
const PHASES = {
  input_guardrails: 'input',
  output_guardrails: 'output',
  input_mutators: 'input',
  output_mutators: 'output',
  before_request_hooks: 'input',
  after_request_hooks: 'output',
} as const satisfies Record<(typeof GUARDRAIL_LISTS | typeof HOOK_LISTS)[number], Phase>;

export interface RuleOptions {
  readonly checkHost: CheckHost;
  /** `x-gateway-` and the alias prefixes in use. */
  readonly headerPrefixes: readonly string[];
  readonly saved: boolean;
}

export function* checkRules(config: Config, options: RuleOptions): Steps<Issue[]> {
  const issues: Issue[] = [];
  checkCaps(config, issues);
  const nodes: [Config, Path][] = [];
  walk(config, [], (node, path) => nodes.push([node, path]));
  for (const [node, path] of nodes) {
    yield;
    yield* checkNode(node, path, options, issues);
  }
  yield;
  checkPatterns(config, issues);
  return issues;
}

/** Patterns are compiled with the config, which may come with each request, and nobody else is served meanwhile. */
function checkPatterns(config: Config, issues: Issue[]): void {
  let cost = 0;
  walk(config, [], ({ strategy }, path) => {
    for (const [index, { query }] of (strategy?.conditions ?? []).entries()) {
      const before = cost;
      cost += patternCosts(query);
      if (before > MAX_PATTERN_COST || cost <= MAX_PATTERN_COST) continue;
      const message = 'has patterns ($regex) that are too large together with those before: use fewer or smaller ones';
      issues.push({ path: formatPath([...path, 'strategy', 'conditions', index, 'query']), message });
    }
  });
}

/** Visits the root and every target, parents first. */
export function walk(config: Config, path: Path, visit: (node: Config, path: Path) => void): void {
  visit(config, path);
  for (const [index, target] of (config.targets ?? []).entries()) walk(target, [...path, 'targets', index], visit);
}

function descendants(config: Config): number {
  let n = 0;
  for (const target of config.targets ?? []) n += 1 + descendants(target);
  return n;
}

function checkCaps(config: Config, issues: Issue[]): void {
  const targets = config.targets ?? [];
  const most = config.strategy?.mode === 'conditional' ? MAX_CONDITIONAL_TARGETS : MAX_ROOT_TARGETS;
  if (targets.length > most) issues.push({ path: 'targets', message: `must have at most ${most} items` });
  for (const [index, target] of targets.entries()) {
    if (descendants(target) > MAX_NESTED_TARGETS) {
      issues.push({
        path: formatPath(['targets', index, 'targets']),
        message: `must hold at most ${MAX_NESTED_TARGETS} nested targets, on all levels together`,
      });
    }
  }
}

function* checkNode(node: Config, path: Path, options: RuleOptions, issues: Issue[]): Steps<void> {
  const report = (at: Path, message: string) => issues.push({ path: formatPath([...path, ...at]), message });
  const before = issues.length;
  checkPassthrough(node, path.length === 0, report);
  if (options.saved && node.provider === undefined) {
    // The sender of a request would choose which vendor gets the credential.
    for (const key of SECRET_KEYS) {
      if (accountValue(node, key) !== undefined)
        report([key], 'needs "provider" beside it: the provider that the credential is for');
    }
  }
  checkStrategy(node, path, report, issues);
  if (node.stream?.restart_within && node.stream.on_break === 'error') {
    report(['stream', 'restart_within'], 'is possible with "on_break" of "restart" or "continue" only');
  }
  if (node.custom_host !== undefined) {
    const problem = options.checkHost(node.custom_host);
    if (problem !== null) report(['custom_host'], problem);
  }
  if (node.metadata !== undefined && path.length > 0) {
    report(['metadata'], 'is about the whole request: it belongs to the root of the config');
  }
  checkForwardHeaders(node, options.headerPrefixes, report);
  yield* checkGuardrails(node, options, report);
  if (issues.length === before && !isComplete(node)) {
    report(
      [],
      'says nothing to do: give a provider with credentials, "virtual_key", "strategy" with "targets", or a setting such as "retry" or "cache"',
    );
  }
}

type Report = (at: Path, message: string) => void;

function checkPassthrough(node: Config, root: boolean, report: Report): void {
  if (node.passthrough !== true) return;
  const excluded: readonly (keyof Config)[] = root
    ? ['targets', 'strategy', 'override_params', ...GUARDRAIL_LISTS, ...HOOK_LISTS]
    : ['provider', 'virtual_key', 'api_key', 'targets', 'strategy'];
  for (const key of excluded) {
    if (node[key] !== undefined) report([key], 'cannot be combined with "passthrough": true');
  }
}

/** Checks inside a config follow the rules of those of a guardrail. */
function* checkGuardrails(node: Config, options: RuleOptions, report: Report): Steps<void> {
  for (const list of GUARDRAIL_LISTS) {
    for (const [index, item] of (node[list] ?? []).entries()) {
      if (typeof item === 'string') continue;
      const checks = inlineChecks(item);
      if (checks.length === 0 && item.id === undefined) {
        report([list, index], 'names neither a check nor, as "id", a guardrail');
      }
      for (const check of checks) {
        if (!CHECK_ID.test(check.id)) {
          report([list, index, check.id], 'is neither a known key nor a check id');
          continue;
        }
        for (const issue of (yield* readChecks('llm', [check])).error?.issues ?? []) {
          // `[0].id` and `[0].parameters.rule` of a list of one.
          report([list, index, check.id, ...(issue.path.slice(2) as Path)], issue.message);
        }
        for (const { name, problem } of urlFaults(check.parameters ?? {}, options.checkHost)) {
          report([list, index, check.id, name], problem);
        }
        checkPhase(list, check, [list, index, check.id], report);
      }
    }
  }
  for (const list of HOOK_LISTS) {
    for (const [index, { checks = [] }] of (node[list] ?? []).entries()) {
      if (checks.length === 0) continue;
      for (const issue of (yield* readChecks('llm', checks)).error?.issues ?? []) {
        report([list, index, 'checks', ...(issue.path as Path)], issue.message);
      }
      for (const [at, check] of checks.entries()) {
        for (const { name, problem } of urlFaults(check.parameters ?? {}, options.checkHost)) {
          report([list, index, 'checks', at, 'parameters', name], problem);
        }
        checkPhase(list, check, [list, index, 'checks', at, 'id'], report);
      }
    }
  }
}

/** A check that stands where it never runs would only look as if it did something. */
function checkPhase(
  list: keyof typeof PHASES,
  check: { readonly id: string; readonly is_enabled?: boolean | undefined },
  at: Path,
  report: Report,
): void {
  const phase = PHASES[list];
  if (check.is_enabled === false || (CHECKS.get(check.id)?.phases ?? [phase]).includes(phase)) return;
  const [what, side] = phase === 'input' ? ['answers', 'output'] : ['requests', 'input'];
  report(at, `judges ${what} only and never runs here: it belongs into a list of the ${side}`);
}

function checkStrategy(node: Config, path: Path, report: Report, issues: Issue[]): void {
  const { strategy, targets } = node;
  if (strategy && !targets) report(['targets'], 'is required with "strategy"');
  if (targets && !strategy) report(['strategy'], 'is required with "targets"');
  if (!strategy || !targets) return;

  const names = new Set<string>();
  for (const [index, target] of targets.entries()) {
    if (target.name === undefined) continue;
    if (names.has(target.name)) report(['targets', index, 'name'], 'is the name of another target in the same list');
    names.add(target.name);
  }
  if (strategy.mode === 'conditional') {
    if (!strategy.conditions) report(['strategy', 'conditions'], 'is required with the mode "conditional"');
    if (strategy.default === undefined) report(['strategy', 'default'], 'is required with the mode "conditional"');
  }
  if (strategy.sticky && strategy.mode !== 'loadbalance') {
    report(['strategy', 'sticky'], 'is possible with the mode "loadbalance" only');
  }
  for (const [index, field] of (strategy.sticky?.hash_fields ?? []).entries()) {
    const problem = keyProblem(field);
    if (problem !== null) report(['strategy', 'sticky', 'hash_fields', index], problem);
  }
  if (strategy.mode === 'loadbalance' && targets.every((target) => target.weight === 0)) {
    report(['targets'], 'must have at least one target with a weight above 0');
  }
  for (const [index, condition] of (strategy.conditions ?? []).entries()) {
    checkQuery(condition.query, [...path, 'strategy', 'conditions', index, 'query'], issues);
    if (!names.has(condition.then)) {
      report(['strategy', 'conditions', index, 'then'], 'must be the name of one of the targets');
    }
  }
  if (strategy.default !== undefined && !names.has(strategy.default)) {
    report(['strategy', 'default'], 'must be the name of one of the targets');
  }
}

function checkForwardHeaders(node: Config, prefixes: readonly string[], report: Report): void {
  for (const [index, header] of (node.forward_headers ?? []).entries()) {
    const lower = header.trim().toLowerCase();
    if (!HEADER_NAME.test(header)) report(['forward_headers', index], 'is not a valid header name');
    else if (prefixes.some((prefix) => lower === `${prefix}forward-headers`)) {
      report(['forward_headers', index], 'is the header that lists forwarded headers and cannot be in the list');
    } else if (metadataHeaders.has(lower)) {
      report(['forward_headers', index], 'is a header of a cloud metadata service and cannot be forwarded');
    }
  }
}

/** "A config is valid when at least one of these sets is present". */
function isComplete(node: Config): boolean {
  if (node.provider !== undefined) {
    if (node.provider.startsWith('@') || node.api_key !== undefined || node.custom_host !== undefined) return true;
    if (ACCOUNT_KEYS.some((key) => accountValue(node, key) !== undefined)) return true;
    // The sandbox and its like are called without any credential.
    if (providerById(node.provider)?.needsKey === false) return true;
  }
  const { override_params: override } = node;
  const model = override && Object.hasOwn(override, 'model') ? override.model : undefined;
  return (
    node.virtual_key !== undefined ||
    (node.strategy !== undefined && node.targets !== undefined) ||
    node.cache !== undefined ||
    node.retry !== undefined ||
    node.prompt_id !== undefined ||
    node.forward_headers !== undefined ||
    node.request_timeout !== undefined ||
    node.timeouts !== undefined ||
    node.stream !== undefined ||
    node.hedge !== undefined ||
    node.passthrough === true ||
    node.fetch_integrated_models === true ||
    node.default_params !== undefined ||
    node.drop_params !== undefined ||
    (typeof model === 'string' && /^@[^/]+\/./.test(model)) ||
    [...GUARDRAIL_LISTS, ...HOOK_LISTS].some((list) => node[list] !== undefined)
  );
}
