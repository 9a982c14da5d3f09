import type { Config, Operations } from '../../../types/api.ts';
import { t } from '../../app/i18n.ts';
import type { Decision } from '../request/story.ts';

export type Saved = Config;
export type Listed = Operations['GET /v1/configs']['answer']['data'][number];
export type Version = Operations['GET /v1/configs/{slug}/versions']['answer']['data'][number];
export type Target = Decision['targets'][number];

/** A config, or a target in one, as far as a tree needs it. */
export interface Node {
  readonly name?: string;
  readonly strategy?: {
    readonly mode?: string;
    readonly on_status_codes?: readonly number[];
    readonly conditions?: readonly { readonly query: unknown; readonly then: string }[];
    readonly default?: string;
    readonly cb_config?: unknown;
  };
  readonly targets?: readonly Node[];
  readonly provider?: string;
  readonly virtual_key?: string;
  readonly weight?: number;
  readonly override_params?: { readonly model?: unknown };
  readonly retry?: { readonly attempts?: number };
  readonly cache?: { readonly mode?: string };
  readonly cb_config?: unknown;
  readonly passthrough?: boolean;
  readonly request_timeout?: number;
  readonly input_guardrails?: readonly unknown[];
  readonly output_guardrails?: readonly unknown[];
}

/** What is wrong with a text that should be JSON, and on which line, counted from 1; null where nothing is. */
export function faultOfJson(text: string): { readonly line: number; readonly message: string } | null {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const position = /position (\d+)/.exec(message)?.[1];
    const named = /line (\d+)/.exec(message)?.[1];
    const quoted = /\.\.\.?"([\s\S]*)"\.\.\.?/.exec(message)?.[1] ?? null;
    const at =
      position !== undefined ? Number(position) : quoted === null ? text.trimEnd().length : text.indexOf(quoted);
    const line = named !== undefined ? Number(named) : text.slice(0, Math.max(0, at)).split('\n').length;
    return { line, message: message.replace(/^JSON\.parse: /, '').replace(/ in JSON at position.*$/, '') };
  }
}

/** What a strategy does, in words. */
export function modeOf({ strategy, targets = [] }: Node): string {
  if (targets.length === 0) return t('one target');
  switch (strategy?.mode) {
    case 'fallback':
      return strategy.on_status_codes === undefined
        ? t('one after the other, after any failure')
        : t('one after the other, after {codes}', { codes: strategy.on_status_codes.join(', ') });
    case 'loadbalance':
      return t('drawn by weight');
    case 'conditional':
      return t('by condition');
    default:
      return t('the first one');
  }
}

export interface Recipe {
  readonly id: string;
  readonly name: string;
  readonly what: string;
  readonly config: unknown;
}

/** @param slug of a provider of the workspace, so that the recipe runs as it is */
export const recipes = (slug: string): Recipe[] => {
  const provider = `@${slug}`;
  const two = [
    { name: 'first', provider },
    { name: 'second', provider },
  ];
  return [
    {
      id: 'retry',
      name: t('Retry'),
      what: t('Tries again after a failure that passes.'),
      config: { provider, retry: { attempts: 3 } },
    },
    {
      id: 'fallback',
      name: t('Fallback'),
      what: t('Goes to a second provider when the first one fails or is slow.'),
      config: {
        strategy: {
          mode: 'fallback',
          on_status_codes: [408, 429, 500, 502, 503, 504],
          cb_config: { failure_threshold: 5, cooldown_interval: 60_000 },
        },
        request_timeout: 30_000,
        targets: two,
      },
    },
    {
      id: 'ab',
      name: t('A/B test'),
      what: t('Sends nine of ten requests to one target, and the tenth to another.'),
      config: {
        strategy: { mode: 'loadbalance' },
        targets: [
          { ...two[0], weight: 9 },
          { ...two[1], weight: 1 },
        ],
      },
    },
    {
      id: 'metadata',
      name: t('By metadata'),
      what: t('Chooses a target by what the request says of itself.'),
      config: {
        strategy: {
          mode: 'conditional',
          // biome-ignore lint/suspicious/noThenProperty: the name is the API's
          conditions: [{ query: { 'metadata.plan': { $eq: 'paid' } }, then: 'first' }],
          default: 'second',
        },
        targets: two,
      },
    },
    {
      id: 'cap',
      name: t('Cost cap'),
      what: t('Bounds each answer, and goes to a cheaper model where a budget is used up.'),
      config: {
        strategy: { mode: 'fallback', on_status_codes: [408, 412, 429, 502, 503, 504] },
        override_params: { max_tokens: 500 },
        targets: two,
      },
    },
  ];
};
