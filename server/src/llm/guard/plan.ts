/** Which guardrails run for a request, and in which order. Decided with the plan, so that none costs nothing. */
import { compileInline, inlineChecks, withActions } from '../../guardrails/compile.ts';
import type { Guardrail } from '../../guardrails/guardrail.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { quotedName } from '../../kernel/quoted.ts';
import type { Operation } from '../../operations/operation.ts';
import type { Config } from '../../resources/configs/schema.ts';
import type { WorkspaceSnapshot } from '../../runtime/snapshot.ts';

export interface GuardPlan {
  readonly input: readonly Guardrail[];
  readonly output: readonly Guardrail[];
}

/** Lists of a config, in the order in which they run: what judges before what changes. */
const LISTS = {
  input: ['before_request_hooks', 'input_guardrails', 'input_mutators'],
  output: ['after_request_hooks', 'output_guardrails', 'output_mutators'],
} as const;

/**
 * The guardrails of the organisation's defaults, of the workspace's, and of the config; each once, where it comes first. A
 * config that came with the request runs before all others: what its guardrails and mutators make of the request is the
 * caller's own, and must be judged; defaults that it names stay where defaults are.
 *
 * @param inline whether the config came with the request
 */
export function guardPlan(
  operation: Operation,
  snapshot: WorkspaceSnapshot,
  config: Config | null,
  inline: boolean,
): GuardPlan | null {
  if (!operation.guarded) return null;
  const input = listOf('input', snapshot, config, inline);
  const output = operation.gives === 'nothing' ? [] : listOf('output', snapshot, config, inline);
  return input.length + output.length === 0 ? null : { input, output };
}

function listOf(
  phase: 'input' | 'output',
  snapshot: WorkspaceSnapshot,
  config: Config | null,
  inline: boolean,
): readonly Guardrail[] {
  const defaults = snapshot.guardrails[phase];
  if (config === null) return defaults;
  const own: Guardrail[] = [];
  for (const list of LISTS[phase]) {
    for (const [index, entry] of (config[list] ?? []).entries()) {
      const made = guardrailOf(entry, `${list}[${index}]`, list.endsWith('mutators'), snapshot);
      if (made !== null) own.push(made);
    }
  }
  if (own.length === 0) return defaults;
  if (!inline) return once([...defaults, ...own]);
  // A default that the caller names, too, still comes last, or what the caller's mutators make would pass it by.
  const known = new Set(defaults.map(identity));
  return [...once(own).filter((guardrail) => !known.has(identity(guardrail))), ...defaults];
}

/**
 * Stored ones are known by what they do, which is the same object where one is named by its id, by its slug or as a mutator:
 * an entry that says other actions is another. One inside a config is no other.
 */
const identity = ({ actions }: Guardrail): unknown => actions;

function once(list: readonly Guardrail[]): readonly Guardrail[] {
  const known = new Map<unknown, Guardrail>();
  for (const guardrail of list) if (!known.has(identity(guardrail))) known.set(identity(guardrail), guardrail);
  return [...known.values()];
}

function guardrailOf(
  entry: string | Readonly<Record<string, unknown>>,
  place: string,
  mutator: boolean,
  snapshot: WorkspaceSnapshot,
): Guardrail | null {
  if (typeof entry === 'string') return named(entry, place, mutator, snapshot);
  if (inlineChecks(entry).length > 0) {
    // Targets that inherit a list have one guardrail of each entry, by which it is known what has judged already.
    return madeOnce(inline, entry, () => compileInline(entry, place, mutator ? 'mutator' : 'guardrail'));
  }
  // An entry without checks stands for the guardrail that it names.
  const { id } = entry;
  if (typeof id !== 'string') return null;
  const found = named(id, place, mutator, snapshot);
  let acting = others.get(found);
  if (acting === undefined) {
    acting = new WeakMap();
    others.set(found, acting);
  }
  return madeOnce(acting, entry, () => withActions(found, entry));
}

function named(name: string, place: string, mutator: boolean, { guardrails }: WorkspaceSnapshot): Guardrail {
  const found = guardrails.byName.get(name) ?? guardrails.byName.get(name.toLowerCase());
  if (found === undefined) {
    throw new SluiceError(
      'malformed_call',
      `The config names the guardrail ${quotedName(name)} in ${place}, which is no active guardrail of this workspace or its organisation with the target llm; GET /v1/guardrails lists them.`,
    );
  }
  return mutator ? madeOnce(mutators, found, () => ({ ...found, type: 'mutator' })) : found;
}

const inline = new WeakMap<object, Guardrail>();
const mutators = new WeakMap<object, Guardrail>();
/** Of stored ones, by the entry that says other actions. */
const others = new WeakMap<Guardrail, WeakMap<object, Guardrail>>();

function madeOnce(known: WeakMap<object, Guardrail>, of: object, make: () => Guardrail): Guardrail {
  let made = known.get(of);
  if (made === undefined) {
    made = make();
    known.set(of, made);
  }
  return made;
}
