/**
 * Which policies a request belongs to, compiled once per snapshot. A request looks its own values up in an
 * index and tests only policies that one of them led to, so thousands of policies cost what a few do.
 */
import type { PolicyCondition, PolicyGroup } from '../../store/schema.ts';

/** What conditions and groups can see of a request; null where it has no such thing. */
export interface PolicyFacts {
  readonly workspace_id: string;
  readonly organisation_id: string;
  /** UUID of the API key. */
  readonly api_key: string | null;
  /** Slug of the stored provider or virtual key. */
  readonly virtual_key: string | null;
  /** Base provider. */
  readonly provider: string | null;
  /** Slug of the config in force. */
  readonly config: string | null;
  readonly prompt: string | null;
  /** The model as requested, `@slug/model`: never the one that answered. Made by `requestModel`. */
  readonly model: string | null;
  /** Request type as guardrails name it, such as `chatComplete`. */
  readonly endpoint_type: string | null;
  readonly mcp_server: string | null;
  readonly mcp_tool: string | null;
  readonly metadata: Readonly<Record<string, string>> | null;
}

/** `@slug/model` as policies compare it. Providers take models in any case, and a limit must not be dodged by that. */
export function requestModel(slug: string, model: string): string {
  return `@${slug}/${model}`.toLowerCase();
}

/** What of a request of a model decides which policies see it, when it comes and when its record is read. */
export interface PolicySubject {
  readonly workspaceId: string;
  readonly organisationId: string;
  readonly keyId: string | null;
  /** Base provider, and the slug of the stored provider or virtual key. */
  readonly provider: string | null;
  readonly slug: string | null;
  readonly config: string | null;
  /** As it was asked for; empty where there is none. */
  readonly model: string;
  readonly requestType: string;
  readonly metadata: Readonly<Record<string, string>> | null;
}

export function requestFacts(asked: PolicySubject): PolicyFacts {
  const slug = asked.slug ?? asked.provider;
  return {
    workspace_id: asked.workspaceId,
    organisation_id: asked.organisationId,
    api_key: asked.keyId,
    virtual_key: asked.slug,
    provider: asked.provider,
    config: asked.config,
    prompt: null,
    model: slug === null || asked.model === '' ? null : requestModel(slug, asked.model),
    endpoint_type: asked.requestType,
    mcp_server: null,
    mcp_tool: null,
    metadata: asked.metadata,
  };
}

/** The workspace that the policies belong to. */
export interface PolicyPlace {
  readonly workspaceId: string;
  readonly workspaceSlug: string;
  readonly organisationId: string;
}

/** What of a policy row decides whom it concerns. */
export interface PolicySelector {
  readonly conditions: readonly PolicyCondition[];
  readonly group_by: readonly PolicyGroup[];
}

/** A policy that a request belongs to, with the request's own counter in it. */
export interface PolicyMatch<P> {
  readonly policy: P;
  /** As people read it: `metadata._user:alice`, several joined with `-`. Values are not escaped. */
  readonly valueKey: string;
  /** The same as a part of a counter's key: two different combinations of values never share one. */
  readonly bucket: string;
}

type PlainKey = Exclude<keyof PolicyFacts, 'metadata'>;

/** `metadata.<name>` is read from the request's metadata, every other key is a separate fact. */
type Source = { readonly plain: PlainKey } | { readonly metadata: string };

interface Test {
  readonly source: Source;
  /** Null: any value will do, also none. */
  readonly values: ReadonlySet<string> | null;
  readonly excludes: ReadonlySet<string> | null;
}

interface Compiled<P> {
  readonly policy: P;
  /** Place in the list, which is the order in which policies refuse. */
  readonly order: number;
  readonly tests: readonly Test[];
  readonly groups: readonly { readonly key: string; readonly source: Source }[];
  /** Whether it asks where the request goes. */
  readonly ofTarget: boolean;
}

/**
 * Of a request that may go to several targets: policies that ask for its provider or model belong to the target that is
 * tried, all others to the request.
 */
export type PolicyScope = 'all' | 'request' | 'target';

const OF_TARGET: ReadonlySet<string> = new Set(['provider', 'virtual_key', 'model']);

const METADATA = 'metadata.';
const NOBODY: readonly never[] = [];

function sourceOf(key: string): Source {
  return key.startsWith(METADATA) ? { metadata: key.slice(METADATA.length) } : { plain: key as PlainKey };
}

function factOf(source: Source, facts: PolicyFacts): string | null {
  if ('plain' in source) return facts[source.plain];
  const { metadata } = facts;
  return metadata !== null && Object.hasOwn(metadata, source.metadata) ? (metadata[source.metadata] ?? null) : null;
}

/** What a model also answers to: `@slug/*`, and the bare name. */
function everyModel(model: string): string {
  return `${model.slice(0, model.indexOf('/'))}/*`;
}
function bareModel(model: string): string {
  return model.slice(model.indexOf('/') + 1);
}

function isIn(set: ReadonlySet<string>, source: Source, value: string): boolean {
  if (set.has(value)) return true;
  return 'plain' in source && source.plain === 'model' && (set.has(everyModel(value)) || set.has(bareModel(value)));
}

function holds(test: Test, facts: PolicyFacts): boolean {
  const value = factOf(test.source, facts);
  if (value === null) return test.values === null;
  if (test.values !== null && !isIn(test.values, test.source, value)) return false;
  return test.excludes === null || !isIn(test.excludes, test.source, value);
}

function listOf(value: string | readonly string[] | undefined): readonly string[] {
  return value === undefined ? NOBODY : typeof value === 'string' ? [value] : value;
}

/** Ids and models are compared in lower case, everything else as it is. */
function normal(key: string, values: readonly string[]): ReadonlySet<string> {
  const lower = key === 'api_key' || key === 'model' || key === 'workspace_id' || key === 'organisation_id';
  return new Set(lower ? values.map((value) => value.toLowerCase()) : values);
}

/** Null: can never hold. Undefined: always holds. */
function compileCondition(condition: PolicyCondition, place: PolicyPlace): Test | null | undefined {
  const { key } = condition;
  const wanted = listOf(condition.value);
  const unwanted = listOf(condition.excludes);
  if (unwanted.includes('*')) return null;
  const values = wanted.length === 0 || wanted.includes('*') ? null : normal(key, wanted);
  const excludes = unwanted.length === 0 ? null : normal(key, unwanted);
  if (key === 'workspace_id' || key === 'organisation_id') {
    // Known now: a policy only ever sees requests of the workspace that owns it.
    const own = key === 'workspace_id' ? [place.workspaceId, place.workspaceSlug] : [place.organisationId];
    const among = (set: ReadonlySet<string>) => own.some((name) => set.has(name.toLowerCase()));
    return (values === null || among(values)) && (excludes === null || !among(excludes)) ? undefined : null;
  }
  if (values === null && excludes === null) return undefined;
  return { source: sourceOf(key), values, excludes };
}

type Lookup<P> = Map<string, Compiled<P>[]>;

/** The policies of one workspace that are in force, findable by what a request is. Immutable. */
export class PolicyIndex<P extends PolicySelector> {
  /** Number of policies that some request can match. */
  readonly size: number;
  readonly #always: Compiled<P>[] = [];
  readonly #plain = new Map<PlainKey, Lookup<P>>();
  readonly #metadata = new Map<string, Lookup<P>>();

  constructor(policies: readonly P[], place: PolicyPlace) {
    const compiled: Compiled<P>[] = [];
    for (const [order, policy] of policies.entries()) {
      const tests = policy.conditions.map((condition) => compileCondition(condition, place));
      if (tests.includes(null)) continue;
      const asks = [...policy.conditions, ...policy.group_by];
      compiled.push({
        policy,
        order,
        tests: tests.filter((test) => test !== undefined && test !== null),
        groups: policy.group_by.map(({ key }) => ({ key, source: sourceOf(key) })),
        ofTarget: asks.some(({ key }) => OF_TARGET.has(key)),
      });
    }
    this.size = compiled.length;
    const crowd = countValues(compiled);
    for (const entry of compiled) {
      const best = mostSelective(entry.tests, crowd);
      if (best === null) {
        this.#always.push(entry);
        continue;
      }
      const lookup = this.#lookup(best.source);
      for (const value of best.values ?? []) {
        const list = lookup.get(value);
        if (list === undefined) lookup.set(value, [entry]);
        else list.push(entry);
      }
    }
  }

  /** Every policy the request belongs to, in the order they were given. */
  match(facts: PolicyFacts, scope: PolicyScope = 'all'): readonly PolicyMatch<P>[] {
    let found: Compiled<P>[] = [];
    collect(this.#always, facts, found);
    for (const [key, lookup] of this.#plain) {
      const value = facts[key];
      if (value === null) continue;
      collect(lookup.get(value), facts, found);
      if (key === 'model') {
        collect(lookup.get(everyModel(value)), facts, found);
        collect(lookup.get(bareModel(value)), facts, found);
      }
    }
    if (facts.metadata !== null && this.#metadata.size > 0) {
      // The request's names, not the policies': there may be one of those per policy.
      for (const name of Object.keys(facts.metadata)) {
        collect(this.#metadata.get(name)?.get(facts.metadata[name] ?? ''), facts, found);
      }
    }
    if (scope !== 'all') found = found.filter(({ ofTarget }) => ofTarget === (scope === 'target'));
    if (found.length === 0) return NOBODY;
    if (found.length > 1) found.sort((a, b) => a.order - b.order);
    // A model is looked up under three names, and one policy may list two of them.
    return found.filter((entry, i) => entry !== found[i - 1]).map((entry) => bucketOf(entry, facts));
  }

  /** No request belongs to more policies than this: those of every request, and of each value the most that share it. */
  get most(): number {
    let most = this.#always.length;
    for (const [key, lookup] of this.#plain) most += key === 'model' ? mostOfModel(lookup) : mostOf(lookup.values());
    for (const lookup of this.#metadata.values()) most += mostOf(lookup.values());
    return most;
  }

  #lookup(source: Source): Lookup<P> {
    return 'plain' in source ? lookupOf(this.#plain, source.plain) : lookupOf(this.#metadata, source.metadata);
  }
}

function lookupOf<P, K>(lookups: Map<K, Lookup<P>>, key: K): Lookup<P> {
  let lookup = lookups.get(key);
  if (lookup === undefined) {
    lookup = new Map();
    lookups.set(key, lookup);
  }
  return lookup;
}

/** The index of a workspace's policies; null when it has none, which costs a request nothing. */
export function compilePolicies<P extends PolicySelector>(
  policies: readonly P[],
  place: PolicyPlace,
): PolicyIndex<P> | null {
  if (policies.length === 0) return null;
  const index = new PolicyIndex(policies, place);
  return index.size === 0 ? null : index;
}

function collect<P>(candidates: readonly Compiled<P>[] | undefined, facts: PolicyFacts, into: Compiled<P>[]): void {
  if (candidates === undefined) return;
  for (const entry of candidates) {
    if (entry.tests.every((test) => holds(test, facts))) into.push(entry);
  }
}

function mostOf(lists: Iterable<readonly unknown[]>): number {
  let most = 0;
  for (const { length } of lists) most = Math.max(most, length);
  return most;
}

/** A model has a name with its provider, one for all models of that, and one without. */
function mostOfModel(lookup: ReadonlyMap<string, readonly unknown[]>): number {
  const kindOf = (name: string) => (name.endsWith('/*') ? 'all' : name.startsWith('@') ? 'full' : 'bare');
  const byKind = Object.values(Object.groupBy(lookup, ([name]) => kindOf(name)));
  return byKind.reduce((sum, entries = []) => sum + mostOf(entries.map(([, list]) => list)), 0);
}

/** How many policies name each value: those are tested together when a request has it. */
function countValues(compiled: readonly Compiled<unknown>[]): Map<string, number> {
  const crowd = new Map<string, number>();
  for (const { tests } of compiled) {
    for (const test of tests) {
      for (const value of test.values ?? []) {
        const name = nameOf(test.source, value);
        crowd.set(name, (crowd.get(name) ?? 0) + 1);
      }
    }
  }
  return crowd;
}

function nameOf(source: Source, value: string): string {
  return 'plain' in source ? `${source.plain}\n${value}` : `${METADATA}${source.metadata}\n${value}`;
}

/** The test whose most crowded value is shared with the fewest other policies; null when none asks for values. */
function mostSelective(tests: readonly Test[], crowd: ReadonlyMap<string, number>): Test | null {
  let best: Test | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const test of tests) {
    if (test.values === null) continue;
    let most = 0;
    for (const value of test.values) most = Math.max(most, crowd.get(nameOf(test.source, value)) ?? 0);
    if (most < least) {
      least = most;
      best = test;
    }
  }
  return best;
}

function bucketOf<P>(entry: Compiled<P>, facts: PolicyFacts): PolicyMatch<P> {
  const { policy, groups } = entry;
  const [only] = groups;
  if (groups.length === 1 && only !== undefined) {
    const valueKey = `${only.key}:${factOf(only.source, facts) ?? ''}`;
    return { policy, valueKey, bucket: valueKey };
  }
  let valueKey = '';
  let bucket = '';
  for (const { key, source } of groups) {
    // Requests without the value share one counter, so leaving it out is no way around the limit.
    const value = factOf(source, facts) ?? '';
    valueKey += `${valueKey === '' ? '' : '-'}${key}:${value}`;
    bucket += `${value.length}:${value}`;
  }
  return { policy, valueKey, bucket };
}
