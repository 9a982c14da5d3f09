import { inlineChecks } from '../../guardrails/compile.ts';
import type { CheckHost } from '../body-fields.ts';
import { type Issue, issuesOf } from '../issues.ts';
import { normalise } from './normalise.ts';
import { checkRules, walk } from './rules.ts';
import { type Config, configSchema, GUARDRAIL_LISTS, HOOK_LISTS } from './structure.ts';

export type { Config, Hook, InlineGuardrail, Strategy } from './structure.ts';
export { ACCOUNT_KEYS, accountSettings, accountValue, configSchema, SECRET_KEYS } from './structure.ts';

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
  const { value: normal, issues } = normalise(value);
  if (issues.length > 0) return { ok: false, issues };
  const parsed = configSchema.safeParse(normal);
  if (!parsed.success) return { ok: false, issues: issuesOf(parsed.error) };
  const broken = checkRules(parsed.data, {
    checkHost: options.checkHost,
    headerPrefixes: options.headerPrefixes ?? DEFAULT_PREFIXES,
    saved: options.saved ?? false,
  });
  return broken.length > 0 ? { ok: false, issues: broken.slice(0, MAX_ISSUES) } : { ok: true, config: parsed.data };
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
