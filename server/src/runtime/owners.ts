/**
 * Owners of what is kept at provider accounts, as the data plane asks and notes them. Files, batches and jobs have the same
 * ledger under separate rules (`training/object-ownership.ts`).
 */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Closable } from '../kernel/lifecycle.ts';
import type { SystemTx, Tables, TenantContext } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';

export type ObjectKind = Row<'object_owners'>['kind'];

export interface Named {
  readonly kind: ObjectKind;
  readonly id: string;
}

/** New objects of one answer. */
export interface Made {
  /** Bound to the workspace. */
  readonly tenant: TenantContext;
  readonly account: string;
  readonly provider: string;
  /** API key that asked; null without one. */
  readonly createdBy: string | null;
  readonly objects: readonly Named[];
}

export interface Owners extends Closable {
  /** The first of these objects that the workspace does not own, or null. */
  missing(tenant: TenantContext, account: string, named: readonly Named[]): Promise<Named | null>;
  /** The first of these URIs where another workspace's object is, or null (`foreignUri`). */
  foreign(tenant: TenantContext, account: string, uris: readonly string[]): Promise<string | null>;
  /** Notes whose new objects are. Resolves when that is in the store; an object that has an owner keeps it. */
  note(made: Made): Promise<void>;
}

const WHAT: Readonly<Record<ObjectKind, string>> = {
  file: 'file',
  batch: 'batch',
  job: 'fine-tuning job',
  model: 'fine-tuned model',
  response: 'response',
  item: 'item of a stored response',
  conversation: 'conversation',
  vector_store: 'vector store',
  container: 'container',
};

/** What a caller reads who names an object that the workspace does not own: the same whether there is one or not. */
export function noSuch(kind: ObjectKind): string {
  return `This workspace has no such ${WHAT[kind]}. An object that was not made through Sluice has to be adopted by an administrator first.`;
}

/** The first of these objects that the workspace does not own, or null. */
export async function missingOf(
  tables: Pick<Tables, 'read'>,
  tenant: TenantContext,
  account: string,
  named: readonly Named[],
): Promise<Named | null> {
  const ids = [...new Set(named.map(({ id }) => id))];
  const owned = new Set<string>();
  for (let from = 0; from < ids.length; from += AT_ONCE) {
    const some = ids.slice(from, from + AT_ONCE);
    const rows = await tables.read(tenant, (tx) =>
      tx.list('object_owners', { where: { account, object_id: { in: some } } }),
    );
    for (const { kind, object_id } of rows) owned.add(`${kind} ${object_id}`);
  }
  return named.find(({ kind, id }) => !owned.has(`${kind} ${id}`)) ?? null;
}

/** Behind every text that begins with what stands before it, in the order of bytes. */
const LAST = '\u{10ffff}';

/** URIs of one question: each is a range in two spellings, and SQLite nests at most 1,000 alternatives. */
const URIS_AT_ONCE = 100;

/**
 * The first of these plain URIs where another workspace owns the object, one in the folder it may be, or one its wildcards
 * may mean: providers read whole folders and patterns where they are given one. Null without any.
 */
export async function foreignUri(
  tables: Pick<Tables, 'systemRead'>,
  workspaceId: string,
  account: string,
  uris: readonly string[],
): Promise<string | null> {
  const places = [...new Set(uris)].map((uri) => ({ uri, exact: spelled(uri), folders: spelled(folderOf(uri)) }));
  for (let from = 0; from < places.length; from += URIS_AT_ONCE) {
    const some = places.slice(from, from + URIS_AT_ONCE);
    const within = some.flatMap(({ folders }) =>
      folders.map((folder) => ({ object_id: { gte: folder, lt: folder + LAST } })),
    );
    const [row] = await tables.systemRead((tx) =>
      tx.list('object_owners', {
        where: { account, kind: 'file', workspace_id: { not: workspaceId } },
        anyOf: [{ object_id: { in: some.flatMap(({ exact }) => exact) } }, ...within],
        limit: 1,
      }),
    );
    if (row === undefined) continue;
    const { object_id: id } = row;
    const met = some.find(
      ({ exact, folders }) => exact.includes(id) || folders.some((folder) => id.startsWith(folder)),
    );
    return (met ?? some[0])?.uri ?? null;
  }
  return null;
}

/** As it is, and as an id inside a path. */
const spelled = (uri: string): string[] => [uri, encodeURIComponent(uri)];

function folderOf(uri: string): string {
  const wild = uri.search(/[*?[]/);
  if (wild >= 0) return uri.slice(0, wild);
  return uri.endsWith('/') ? uri : `${uri}/`;
}

/** Of one question, and of one write: with more that wait, the next one follows. */
const AT_ONCE = 500;

interface Waiting {
  readonly made: Made;
  readonly done: () => void;
  readonly failed: (error: unknown) => void;
}

/** Notes that come while a write is under way go into the next one together. */
export function createOwners(parts: { readonly tables: Tables; readonly clock: Clock }): Owners {
  const { tables, clock } = parts;
  let waiting: Waiting[] = [];
  let writing: Promise<void> | null = null;

  async function write(batch: readonly Waiting[]): Promise<void> {
    const now = clock.now();
    const all = batch.map(({ made }) => made);
    const run = () => tables.systemWrite((tx) => noteAll(tx, all, now));
    await run().catch((error: unknown) => {
      // Another node noted one of them in between: the second look sees it.
      if (error instanceof SluiceError && error.kind === 'conflict') return run();
      throw error;
    });
  }

  async function drain(): Promise<void> {
    while (waiting.length > 0) {
      const batch = waiting.splice(0, AT_ONCE);
      await write(batch).then(
        () => {
          for (const { done } of batch) done();
        },
        (error: unknown) => {
          for (const { failed } of batch) failed(error);
        },
      );
    }
    writing = null;
  }

  return {
    missing: (tenant, account, named) => missingOf(tables, tenant, account, named),
    foreign: (tenant, account, uris) => foreignUri(tables, tenant.workspaceId ?? '', account, uris),
    note(made) {
      return new Promise((done, failed) => {
        waiting.push({ made, done, failed });
        writing ??= drain();
      });
    },
    async close() {
      await writing;
      waiting = [];
    },
  };
}

async function noteAll(tx: SystemTx, all: readonly Made[], now: number): Promise<void> {
  const seen = new Set<string>();
  for (const { account, tenant, provider, createdBy, objects } of all) {
    const ids = objects.map(({ id }) => id);
    const rows = ids.length === 0 ? [] : await tx.list('object_owners', { where: { account, object_id: { in: ids } } });
    for (const row of rows) seen.add(`${account} ${row.kind} ${row.object_id}`);
    for (const { kind, id } of objects) {
      const key = `${account} ${kind} ${id}`;
      if (seen.has(key) || tenant.workspaceId === null) continue;
      seen.add(key);
      await tx.insert('object_owners', {
        account,
        kind,
        object_id: id,
        organisation_id: tenant.organisationId,
        workspace_id: tenant.workspaceId,
        provider,
        created_by: createdBy,
        created_at: now,
      });
    }
  }
}

/** How long an entry is kept of what providers keep for 30 days, milliseconds. */
const SHORT_LIFE_MS = 31 * 24 * 60 * 60_000;
const SHORT_LIVED = ['response', 'item'] as const;

/** Removes the entries of stored responses that their providers have removed by now. */
export async function purgeOwners(tables: Pick<Tables, 'now' | 'systemWrite'>): Promise<void> {
  const before = (await tables.now()) - SHORT_LIFE_MS;
  await tables.systemWrite(async (tx) => {
    for (const kind of SHORT_LIVED) await tx.remove('object_owners', { kind, created_at: { lt: before } });
  });
}
