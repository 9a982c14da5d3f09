/**
 * Rows → immutable snapshots, one per workspace, compiled when first needed. A change of the feed makes the parts stale
 * that depend on its topic; the next request rebuilds these and shares all others. Requests only read a pointer. When the
 * store is away the last good snapshot keeps serving.
 */
import { systemTenant } from '../auth/tenant.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { loadPlace } from '../resources/runtime-rows.ts';
import { NO_MANAGERS, type SecretManagers } from '../resources/secret-references/manager.ts';
import type { Change, Tables } from '../store/ports.ts';
import type { Vault } from '../store/vault.ts';
import { OpenedAccounts } from './compile.ts';
import { ChangeLog } from './noted-changes.ts';
import { PART_NAMES, PARTS, PARTS_OF, type PartName, type PartSource, type Parts } from './parts.ts';
import type { WorkspaceSnapshot } from './snapshot.ts';

export interface Runtime {
  /**
   * The current snapshot of a workspace; a promise only while something is compiled that a request has to wait for.
   * Unknown workspace: `unauthenticated`.
   */
  workspace(organisationId: string, workspaceId: string): WorkspaceSnapshot | Promise<WorkspaceSnapshot>;
  /** Notes what a change touches; the next request of a workspace compiles it anew. Constant time, however many workspaces. */
  invalidate(change: Change): void;
  /** Makes everything stale, for example after changes may have been missed. */
  invalidateAll(): void;
  /** From now on requests wait for every change that was noted so far. To be called when a change of this node is answered. */
  settle(): void;
  /** How often each part was compiled, over all workspaces. */
  readonly compiled: Readonly<Record<PartName, number>>;
}

interface Organisation {
  readonly id: string;
  /** Changes that touch all its workspaces; each workspace reads them when it is next asked for. */
  readonly changes: ChangeLog;
  workspaces: number;
}

/** Of one part, as numbers of changes. */
interface Marks {
  /** The last change that touched it. */
  changed: number;
  /** The last one that requests wait for. */
  awaited: number;
  /** The last one that was noted when it was read. */
  built: number;
}

interface Entry {
  readonly workspaceId: string;
  readonly organisation: Organisation;
  /** How far the organisation's changes were read. */
  heard: number;
  snapshot: WorkspaceSnapshot | null;
  parts: Parts | null;
  readonly marks: Readonly<Record<PartName, Marks>>;
  /** A part has changed since it was built, or there is none yet. */
  stale: boolean;
  loading: Promise<WorkspaceSnapshot> | null;
}

export interface RuntimeOptions {
  readonly tables: Tables;
  readonly vault: Vault;
  /** Default: none, which breaks accounts with secret references only. */
  readonly managers?: SecretManagers;
  readonly clock: Clock;
  readonly log: Log;
  readonly blockInlineConfig: boolean;
  /**
   * Resolves when every change that was committed before the call has been given to `invalidate`: parts that were read at
   * different times are then parts of one state of the store.
   */
  readonly caughtUp: () => Promise<unknown>;
  /** Workspaces kept compiled. */
  readonly capacity?: number;
}

export function createRuntime(options: RuntimeOptions): Runtime {
  const { tables, vault, log } = options;
  const capacity = options.capacity ?? 10_000;
  const entries = new Map<string, Entry>();
  const organisations = new Map<string, Organisation>();
  const opened = new OpenedAccounts(options.managers ?? NO_MANAGERS, options.clock, log);
  const compiled = forEachPart(() => 0);
  let generation = 0;
  /** Changes noted so far. */
  let noted = 0;
  /** Requests wait for all changes up to this one. */
  let settled = 0;

  function enter(organisationId: string, workspaceId: string): Entry {
    leave(entries.get(workspaceId));
    if (entries.size >= capacity) leave(entries.values().next().value);
    let organisation = organisations.get(organisationId);
    if (organisation === undefined) {
      organisation = { id: organisationId, changes: new ChangeLog(), workspaces: 0 };
      organisations.set(organisationId, organisation);
    }
    organisation.workspaces += 1;
    const entry: Entry = {
      workspaceId,
      organisation,
      heard: organisation.changes.end,
      snapshot: null,
      parts: null,
      marks: forEachPart(() => ({ changed: noted, awaited: noted, built: -1 })),
      stale: true,
      loading: null,
    };
    entries.set(workspaceId, entry);
    return entry;
  }

  function leave(entry: Entry | undefined): void {
    if (entry === undefined) return;
    entries.delete(entry.workspaceId);
    entry.organisation.workspaces -= 1;
    if (entry.organisation.workspaces === 0) organisations.delete(entry.organisation.id);
  }

  function touch(entry: Entry, change: Change, number: number): void {
    for (const name of PARTS_OF.get(change.topic) ?? []) {
      const mark = entry.marks[name];
      // What a part will hold that is being built, or has to be, is not known yet.
      const isCurrent = entry.loading === null && mark.changed <= mark.built;
      const effect = isCurrent && entry.parts !== null ? effectOn(name, entry.parts, change) : 'change';
      if (effect === 'none') continue;
      mark.changed = number;
      if (effect === 'change') mark.awaited = number;
      entry.stale = true;
    }
  }

  function touchAll(entry: Entry): void {
    for (const name of PART_NAMES) Object.assign(entry.marks[name], { changed: noted, awaited: noted });
    entry.stale = true;
  }

  /** Reads what has changed for all workspaces of the organisation. */
  function hear(entry: Entry): void {
    const { changes } = entry.organisation;
    const missed = changes.after(entry.heard);
    entry.heard = changes.end;
    if (missed === null) touchAll(entry);
    else for (const { change, number } of missed) touch(entry, change, number);
  }

  function mustWait(entry: Entry): boolean {
    return PART_NAMES.some((name) => {
      const { changed, awaited, built } = entry.marks[name];
      return awaited > built || (changed > built && changed <= settled);
    });
  }

  /** The parts that have changed, until nothing more has: then all of them are of one state of the store. */
  async function load(entry: Entry): Promise<WorkspaceSnapshot> {
    const fresh: { -readonly [N in PartName]?: Parts[N] } = {};
    const built: Partial<Record<PartName, number>> = {};
    try {
      for (;;) {
        hear(entry);
        const wanted = PART_NAMES.filter(
          (name) => entry.marks[name].changed > (built[name] ?? entry.marks[name].built),
        );
        if (wanted.length === 0) return publish(entry, { ...entry.parts, ...fresh } as Parts, built);
        const number = noted;
        const tenant = systemTenant(entry.organisation.id, null);
        const compilers = await tables.read(tenant, async (tx) => {
          const place = await loadPlace(tx, entry.workspaceId);
          if (place === null)
            throw new SluiceError('unauthenticated', 'The workspace of this credential does not exist any more.');
          const source = { tx, vault, place, opened, log, blockInlineConfig: options.blockInlineConfig };
          const made: (() => Promise<Partial<Parts>>)[] = [];
          for (const name of wanted) made.push(await compilerOf(name, source, { ...entry.parts, ...fresh }));
          return made;
        });
        Object.assign(fresh, ...(await Promise.all(compilers.map((compile) => compile()))));
        for (const name of wanted) {
          built[name] = number;
          compiled[name] += 1;
        }
        if (wanted.length < PART_NAMES.length) await options.caughtUp();
      }
    } catch (error) {
      const isGone = error instanceof SluiceError && error.kind === 'unauthenticated';
      if (entry.snapshot === null || isGone) throw error;
      log.error('compiling a workspace failed; its last good snapshot keeps serving', {
        workspaceId: entry.workspaceId,
        error: String(error),
      });
      return entry.snapshot;
    }
  }

  function begin(entry: Entry): Promise<WorkspaceSnapshot> {
    const loading = load(entry).finally(() => {
      if (entry.loading === loading) entry.loading = null;
    });
    entry.loading = loading;
    return loading;
  }

  function publish(entry: Entry, parts: Parts, built: Partial<Record<PartName, number>>): WorkspaceSnapshot {
    const { settings, accounts, ...rest } = parts;
    const { ids: _ids, ...providers } = accounts;
    generation += 1;
    const snapshot: WorkspaceSnapshot = {
      organisationId: entry.organisation.id,
      workspaceId: entry.workspaceId,
      generation,
      ...settings,
      ...providers,
      ...rest,
      plans: new Map(),
    };
    if (entry.snapshot !== null) keepPlans(entry.snapshot, snapshot);
    for (const name of PART_NAMES) entry.marks[name].built = built[name] ?? entry.marks[name].built;
    entry.parts = parts;
    entry.snapshot = snapshot;
    entry.stale = false;
    // A request that comes after the next change must not join what ends here.
    entry.loading = null;
    return snapshot;
  }

  return {
    compiled,
    workspace(organisationId, workspaceId) {
      let entry = entries.get(workspaceId);
      if (entry === undefined || entry.organisation.id !== organisationId) entry = enter(organisationId, workspaceId);
      else if (entry.heard !== entry.organisation.changes.end) hear(entry);
      if (!entry.stale && entry.snapshot !== null) return entry.snapshot;
      if (entry.loading === null) return begin(entry);
      return entry.snapshot === null || mustWait(entry) ? entry.loading : entry.snapshot;
    },
    invalidate(change) {
      if (!PARTS_OF.has(change.topic)) return;
      noted += 1;
      if (change.workspaceId === null) {
        organisations.get(change.organisationId)?.changes.add(change, noted);
        return;
      }
      const entry = entries.get(change.workspaceId);
      if (entry === undefined) return;
      // In the order in which they were committed.
      hear(entry);
      touch(entry, change, noted);
    },
    invalidateAll() {
      noted += 1;
      for (const entry of entries.values()) touchAll(entry);
    },
    settle() {
      settled = noted;
    },
  };
}

function forEachPart<T>(make: () => T): Record<PartName, T> {
  return Object.fromEntries(PART_NAMES.map((name) => [name, make()])) as Record<PartName, T>;
}

function effectOn<N extends PartName>(name: N, parts: Parts, change: Change) {
  return PARTS[name].effect?.(parts[name], change) ?? 'change';
}

async function compilerOf<N extends PartName>(
  name: N,
  source: PartSource,
  former: Partial<Parts>,
): Promise<() => Promise<Partial<Parts>>> {
  const compile = await PARTS[name].read(source, (former as Partial<Pick<Parts, N>>)[name] ?? null);
  return async () => ({ [name]: await compile() });
}

/** Takes over the plans that the new snapshot would make alike: of configs, accounts and demands that did not change. */
function keepPlans(former: WorkspaceSnapshot, next: WorkspaceSnapshot): void {
  if (former.guardrails !== next.guardrails || demandOf(former) !== demandOf(next)) return;
  for (const [key, plan] of former.plans) {
    const { config, target, route } = plan;
    if (config !== null && next.configs.get(config.slug) !== config) continue;
    // Its targets are found as requests need them, also by those that still have the former snapshot.
    if (route !== null && former.providers !== next.providers) continue;
    const stored = target?.stored ?? null;
    if (stored !== null && next.providers.get(stored.slug) !== stored) continue;
    next.plans.set(key, plan);
  }
}

/** Which limits a plan has steps for. */
function demandOf({
  rateLimits: limited,
  usageLimits: budgets,
  ratePolicies,
  usagePolicies,
}: WorkspaceSnapshot): string {
  return [limited !== null, budgets.length > 0, ratePolicies.llm !== null, usagePolicies !== null].join();
}
