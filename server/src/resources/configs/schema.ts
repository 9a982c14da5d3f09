import { inlineChecks } from '../../guardrails/compile.ts';
import { isObject } from '../../kernel/json.ts';
import { atOnce, type Steps } from '../../kernel/turns.ts';
import type { CheckHost } from '../body-fields.ts';
import { formatPath, type Issue, issuesOf } from '../issues.ts';
import { normalise } from './normalise.ts';
import { checkRules, walk } from './rules.ts';
import { type Config, GUARDRAIL_LISTS, HOOK_LISTS, levelSchema, MAX_TARGETS } from './structure.ts';

export type { Config, Hook, InlineGuardrail, Strategy } from './structure.ts';
export { ACCOUNT_KEYS, accountSettings, accountValue, SECRET_KEYS } from './structure.ts';

export interface ParseOptions {
  /** Syntax and address rules for `custom_host`: null, or what is wrong. */
  readonly checkHost: CheckHost;
  /** `x-gateway-` and its aliases, lower case with the hyphen at the end. Defaults to `x-gateway-` alone. */
  readonly headerPrefixes?: readonly string[];
  /** It is to be stored: what it holds is then no longer the caller's own. */
  readonly saved?: boolean;
}

export type ParsedConfig =
  | { readonly ok: true; readonly config: Config }
  | { readonly ok: false; readonly issues: readonly Issue[] };

const DEFAULT_PREFIXES = ['x-gateway-'];
const MAX_ISSUES = 20;

/**
 * Checks a config in full and answers its stored form, keys in snake case. Takes any JSON value and never
 * throws; at most 20 issues, with paths relative to the config (`targets[0].retry.attempts`, empty for the whole).
 * Whether the slugs inside exist is not asked here: guardrails are checked when a config is saved
 * (`guardrailSlugs`), providers and virtual keys when a request uses them.
 */
export function parseConfig(value: unknown, options: ParseOptions): ParsedConfig {
  return atOnce(readConfig(value, options));
}

/** The same, in steps: a config may have a thousand targets, and each of them a hundred checks. */
export function* readConfig(value: unknown, options: ParseOptions): Steps<ParsedConfig> {
  const { value: normal, issues } = normalise(value);
  if (issues.length > 0) return { ok: false, issues };
  const config = yield* readLevel(normal, [], issues);
  if (config === null || issues.length > 0) return { ok: false, issues: issues.slice(0, MAX_ISSUES) };
  const broken = yield* checkRules(config, {
    checkHost: options.checkHost,
    headerPrefixes: options.headerPrefixes ?? DEFAULT_PREFIXES,
    saved: options.saved ?? false,
  });
  return broken.length > 0 ? { ok: false, issues: broken.slice(0, MAX_ISSUES) } : { ok: true, config };
}

/** The root or a target with all that is below it; null, or a value of no use, where `issues` says why. */
function* readLevel(value: unknown, path: (string | number)[], issues: Issue[]): Steps<Config | null> {
  yield;
  const read = levelSchema.safeParse(value);
  if (!read.success) issues.push(...issuesOf(read.error, formatPath(path)));
  const { targets: given, ...level } = read.data ?? { targets: below(value) };
  if (given === undefined) return level;
  const targets: Config[] = [];
  for (const [index, one] of given.entries()) {
    if (issues.length >= MAX_ISSUES) return null;
    const target = yield* readLevel(one, [...path, 'targets', index], issues);
    if (target !== null) targets.push(target);
  }
  return { ...level, targets };
}

/** The targets of a level that is not valid itself: what is wrong with them is of interest all the same. */
function below(value: unknown): unknown[] | undefined {
  const targets = isObject(value) ? value.targets : undefined;
  return Array.isArray(targets) && targets.length <= MAX_TARGETS ? targets : undefined;
}

/** Every stored provider and virtual key named anywhere in a config, with where: `targets[1].provider`. */
export function providerSlugs(config: Config): { slug: string; path: (string | number)[] }[] {
  const out: { slug: string; path: (string | number)[] }[] = [];
  walk(config, [], ({ virtual_key, provider, override_params }, path) => {
    const model = (override_params as { model?: unknown } | undefined)?.model;
    // As requests read it: the first that is there decides.
    if (virtual_key) out.push({ slug: virtual_key, path: [...path, 'virtual_key'] });
    else if (provider?.startsWith('@')) out.push({ slug: provider.slice(1), path: [...path, 'provider'] });
    else if (!provider && typeof model === 'string' && /^@[^/]+\//.test(model))
      out.push({ slug: model.slice(1, model.indexOf('/')), path: [...path, 'override_params', 'model'] });
  });
  return out;
}

/**
 * Every guardrail named anywhere in a config, by slug or id, with where its name stands: `targets[0].input_guardrails[1]`,
 * or `before_request_hooks[0].id` of an entry without checks.
 */
export function guardrailSlugs(config: Config): { slug: string; path: (string | number)[] }[] {
  const out: { slug: string; path: (string | number)[] }[] = [];
  walk(config, [], (node, path) => {
    for (const list of GUARDRAIL_LISTS) {
      for (const [index, item] of (node[list] ?? []).entries()) {
        if (typeof item === 'string') out.push({ slug: item, path: [...path, list, index] });
        else if (item.id !== undefined && inlineChecks(item).length === 0) {
          out.push({ slug: item.id, path: [...path, list, index, 'id'] });
        }
      }
    }
    for (const list of HOOK_LISTS) {
      for (const [index, { id, checks = [] }] of (node[list] ?? []).entries()) {
        if (checks.length === 0) out.push({ slug: id, path: [...path, list, index, 'id'] });
      }
    }
  });
  return out;
}
