/** Guardrails made ready: stored ones, and those inside a config itself. */
import { isObject } from '../kernel/json.ts';
import { type CheckEntry, compileCheck, traitsOf } from './catalog.ts';
import type { Target } from './check.ts';
import { CHECKS } from './checks/index.ts';
import type { Actions, Feedback, Guardrail, GuardrailCheck } from './guardrail.ts';

/** What a guardrail's `actions` say, in stored guardrails and in configs; what is absent has its default. */
export interface GivenActions {
  readonly deny?: boolean | undefined;
  readonly async?: boolean | undefined;
  readonly sequential?: boolean | undefined;
  readonly soft_deny_200?: boolean | undefined;
  readonly on_success?: GivenOutcome | undefined;
  readonly on_fail?: GivenOutcome | undefined;
  readonly on_error?: 'allow' | 'deny' | undefined;
  readonly messages?: Actions['messages'] | undefined;
  readonly stream?: Actions['stream'] | undefined;
  readonly log_content?: Actions['logContent'] | undefined;
}

interface GivenOutcome {
  readonly feedback?:
    | {
        readonly value?: number | undefined;
        readonly weight?: number | undefined;
        readonly metadata?: Feedback['metadata'] | undefined;
      }
    | undefined;
}

export interface StoredGuardrail {
  readonly id: string;
  readonly slug: string;
  readonly name: string;
  readonly version?: string;
  readonly target: Target;
  readonly actions: GivenActions;
  /** With opened parameters; null stands for a check whose secrets do not open. */
  readonly checks: readonly (
    | CheckEntry
    | { readonly id: string; readonly is_enabled: boolean; readonly broken: true }
  )[];
}

/** A check that cannot be made ready stays in the list, without a judge: it fails when it runs. */
export function compileGuardrail(stored: StoredGuardrail, type: Guardrail['type'] = 'guardrail'): Guardrail {
  const { id, slug, name, target, version } = stored;
  const checks = stored.checks.filter((check) => check.is_enabled).map((check) => compiled(check, target));
  const known = version === undefined ? null : { version };
  return { id, slug, name, ...known, target, type, actions: actionsOf(stored.actions), checks };
}

function compiled(check: StoredGuardrail['checks'][number], target: Target): GuardrailCheck {
  let ready: GuardrailCheck | null = null;
  if (!('broken' in check)) {
    try {
      ready = compileCheck(check, target);
    } catch {
      // What its own schema let through it could not use: as one that is not valid.
    }
  }
  return ready ?? broken(check.id);
}

function broken(id: string): GuardrailCheck {
  const known = CHECKS.get(id);
  return {
    id,
    phases: known?.phases ?? ['input', 'output'],
    mutates: false,
    redacts: false,
    common: { timeoutMs: null, failOnError: true, forwardHeaders: [], credentials: null },
    judge: null,
    ...traitsOf(known ?? {}),
  };
}

export function actionsOf(given: GivenActions): Actions {
  return {
    deny: given.deny ?? false,
    async: given.async ?? false,
    sequential: given.sequential ?? false,
    softDeny: given.soft_deny_200 ?? false,
    onSuccess: feedback(given.on_success, 5),
    onFail: feedback(given.on_fail, -5),
    onError: (given.on_error ?? (given.deny === true ? 'deny' : 'allow')) === 'deny' ? 'fail' : 'pass',
    messages: given.messages ?? 'all',
    stream: given.stream ?? 'incremental',
    logContent: given.log_content ?? 'withheld',
  };
}

function feedback(given: GivenOutcome | undefined, value: number): Feedback {
  const { feedback: own = {} } = given ?? {};
  return { value: own.value ?? value, weight: own.weight ?? 1, metadata: own.metadata ?? '' };
}

/** What a thread makes the same guardrail of. */
interface GuardrailSource extends Omit<Guardrail, 'checks'> {
  readonly checks: readonly (CheckEntry | string)[];
}

const sources = new WeakMap<Guardrail, string>();

/** All that the guardrail was made of, opened secrets among it, as a text that another thread takes (`guardrailFrom`). */
export function sourceOf(guardrail: Guardrail): string {
  let text = sources.get(guardrail);
  if (text === undefined) {
    const checks = guardrail.checks.map(({ id, entry }) => entry ?? id);
    text = JSON.stringify({ ...guardrail, checks } satisfies GuardrailSource);
    sources.set(guardrail, text);
  }
  return text;
}

/** Makes the guardrail ready again. A check that was not ready stays one that fails. */
export function guardrailFrom(source: string): Guardrail {
  const given = JSON.parse(source) as GuardrailSource;
  const checks = given.checks.map((entry) =>
    typeof entry === 'string' ? broken(entry) : compiled(entry, given.target),
  );
  return { ...given, checks };
}

const ACTIONS = [
  'deny',
  'async',
  'sequential',
  'on_success',
  'on_fail',
  'soft_deny_200',
  'on_error',
  'messages',
  'stream',
  'log_content',
] as const satisfies readonly (keyof GivenActions)[];

/** Members of an inline guardrail that are no check. */
const NO_CHECKS: ReadonlySet<string> = new Set(['type', 'id', ...ACTIONS]);

/** A stored guardrail where an entry of a config says other actions beside its name; itself where it says none. */
export function withActions(guardrail: Guardrail, entry: Readonly<Record<string, unknown>>): Guardrail {
  const given: GivenActions = entry;
  if (ACTIONS.every((name) => given[name] === undefined)) return guardrail;
  const { actions } = guardrail;
  const said = actionsOf(given);
  // One that comes to deny fails closed, as it does where it is made; what it said itself for that was said of another.
  const turned = given.on_error !== undefined || (given.deny === true && !actions.deny);
  return {
    ...guardrail,
    actions: {
      deny: given.deny ?? actions.deny,
      async: given.async ?? actions.async,
      sequential: given.sequential ?? actions.sequential,
      softDeny: given.soft_deny_200 ?? actions.softDeny,
      onSuccess: given.on_success === undefined ? actions.onSuccess : said.onSuccess,
      onFail: given.on_fail === undefined ? actions.onFail : said.onFail,
      onError: turned ? said.onError : actions.onError,
      messages: given.messages ?? actions.messages,
      stream: given.stream ?? actions.stream,
      logContent: given.log_content ?? actions.logContent,
    },
  };
}

/** The checks of an inline guardrail: those of its list `checks` (raw hooks), or each further member by its id. */
export function inlineChecks(entry: Readonly<Record<string, unknown>>): CheckEntry[] {
  const { checks } = entry;
  if (Array.isArray(checks)) {
    return checks.map((check: Partial<CheckEntry> & { readonly id: string }) => ({
      ...check,
      is_enabled: check.is_enabled ?? true,
    }));
  }
  return Object.entries(entry)
    .filter(([key]) => !NO_CHECKS.has(key))
    .map(([id, parameters]) => ({ id, is_enabled: true, parameters: isObject(parameters) ? parameters : {} }));
}

/**
 * A guardrail inside a config.
 *
 * @param entry of a list of guardrails or mutators, or a raw hook
 * @param place its name where it has no id: `input_guardrails[0]`
 */
export function compileInline(
  entry: Readonly<Record<string, unknown>>,
  place: string,
  type: Guardrail['type'] = 'guardrail',
): Guardrail {
  const { id } = entry;
  const slug = typeof id === 'string' ? id : place;
  const stored = { id: slug, slug, name: slug, target: 'llm', actions: entry, checks: inlineChecks(entry) } as const;
  return compileGuardrail(stored, entry.type === 'mutator' ? 'mutator' : type);
}
