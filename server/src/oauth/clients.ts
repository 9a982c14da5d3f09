/** The programs that may ask users for access: those that registered, and those whose id is the address of a document. */
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { base62 } from '../kernel/id.ts';
import { isObject } from '../kernel/json.ts';
import { parseJson } from '../kernel/json-exact.ts';
import type { Log } from '../kernel/log.ts';
import { Lru } from '../kernel/lru.ts';
import type { SystemTx, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import { type ClientFacts, readMetadata } from './client-metadata.ts';
import { OAuthError } from './errors.ts';

/** As the global one, bounded in time and size, through the egress guard. */
export type ReadDocument = (url: string, init: RequestInit) => Promise<Response>;

/** How documents are read by who asks. */
export interface DocumentReaders {
  /** Also from hosts that the operator trusts, by http too: a user is signed in. */
  readonly user: ReadDocument;
  /** From public hosts only. */
  readonly anybody: ReadDocument;
}

type Asker = keyof DocumentReaders;

export interface ClientsOptions {
  readonly tables: Pick<Tables, 'systemRead' | 'systemWrite'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly documents: DocumentReaders;
}

const DAY_MS = 24 * 3_600_000;
/** A client that nobody has used for this long is forgotten. */
const UNUSED_MS = 90 * DAY_MS;
/** One that no user has ever approved is forgotten after this long: anybody may register any number. */
const UNAPPROVED_MS = 7 * DAY_MS;
/** A client's use is written down once in this time. */
const NOTED_MS = DAY_MS;
const FRESH_MS = { least: 5 * 60_000, usual: 3_600_000, most: DAY_MS } as const;
/** A document that could not be read is not asked for again for this long. */
const FAILED_MS = 30_000;
const MOST_FAILURES = 1_000;
const ID = /^[0-9A-Za-z]{24}$/;
const MOST_CHARACTERS = 2_048;
const UNREADABLE = 'The metadata document of this client cannot be read, or does not say what it must.';

export class Clients {
  readonly #options: ClientsOptions;
  readonly #failed = new Lru<string, number>({ maxEntries: MOST_FAILURES });
  readonly #reading = new Map<string, Promise<Row<'oauth_clients'>>>();

  constructor(options: ClientsOptions) {
    this.#options = options;
  }

  /** Registers a client. Throws `invalid_client_metadata` or `invalid_redirect_uri`. */
  async register(value: unknown): Promise<Row<'oauth_clients'>> {
    const facts = readMetadata(value);
    const now = this.#options.clock.now();
    const row = { id: base62(24), ...facts, fresh_until: null, created_at: now, last_used_at: unapproved(now) };
    await this.#options.tables.systemWrite(async (tx) => {
      await forgetUnused(tx, now);
      await tx.insert('oauth_clients', row);
    });
    return row;
  }

  /** A client that is known already, by its id; undefined for any other. */
  async known(id: string): Promise<Row<'oauth_clients'> | undefined> {
    if (!ID.test(id) && !isDocumentId(id)) return undefined;
    const row = await this.#options.tables.systemRead((tx) => tx.find('oauth_clients', { id }));
    return row && row.last_used_at > this.#options.clock.now() - UNUSED_MS ? row : undefined;
  }

  /**
   * The same, with the document of a client that has one read where it is not fresh.
   *
   * @param isUser whether a signed-in user asks
   */
  async find(id: string, isUser: () => Promise<boolean>): Promise<Row<'oauth_clients'> | undefined> {
    const row = await this.known(id);
    if (!isDocumentId(id)) return row;
    if (row !== undefined && (row.fresh_until ?? 0) > this.#options.clock.now()) return row;
    return this.#document(id, row, (await isUser()) ? 'user' : 'anybody');
  }

  /** Notes that a user has approved a client, or that it has renewed its tokens. */
  async used(tx: SystemTx, id: string): Promise<void> {
    const now = this.#options.clock.now();
    await tx.update('oauth_clients', { id, last_used_at: { lt: now - NOTED_MS } }, { last_used_at: now });
  }

  /** One call at a time for each document; a copy of before serves for a day when it cannot be read. */
  async #document(id: string, before: Row<'oauth_clients'> | undefined, asker: Asker): Promise<Row<'oauth_clients'>> {
    const { clock, log } = this.#options;
    const call = `${asker} ${id}`;
    const old = () => {
      if (before !== undefined && (before.fresh_until ?? 0) > clock.now() - DAY_MS) return before;
      throw new OAuthError('invalid_client', UNREADABLE);
    };
    if ((this.#failed.get(call) ?? 0) > clock.now()) return old();
    let reading = this.#reading.get(call);
    if (reading === undefined) {
      reading = this.#read(id, before, asker).finally(() => this.#reading.delete(call));
      this.#reading.set(call, reading);
    }
    try {
      return await reading;
    } catch (error) {
      if (error instanceof SluiceError && error.kind === 'unavailable') throw error;
      log.warn('the metadata document of an OAuth client cannot be used', { client_id: id, error: String(error) });
      this.#failed.set(call, clock.now() + FAILED_MS);
      return old();
    }
  }

  async #read(id: string, before: Row<'oauth_clients'> | undefined, asker: Asker): Promise<Row<'oauth_clients'>> {
    const { documents, tables, clock } = this.#options;
    const response = await documents[asker](id, { headers: { accept: 'application/json' }, redirect: 'error' });
    if (response.status !== 200) throw new Error(`status ${response.status}`);
    const value = parseJson(await response.text());
    if (!isObject(value) || value.client_id !== id) throw new Error('its client_id is not its own address');
    if (value.client_secret !== undefined) throw new Error('it has a client_secret');
    const facts: ClientFacts = readMetadata(value);
    const now = clock.now();
    const fresh_until = now + freshFor(response.headers.get('cache-control'));
    const row = { created_at: now, last_used_at: unapproved(now), ...before, id, ...facts, fresh_until };
    await tables.systemWrite(async (tx) => {
      if ((await tx.update('oauth_clients', { id }, { ...facts, fresh_until })) > 0) return;
      await forgetUnused(tx, now);
      await tx.insert('oauth_clients', row);
    });
    return row;
  }
}

/** Whether an id is the address of a metadata document: written as a parser writes it, with a path, without a fragment. */
function isDocumentId(id: string): boolean {
  if (!/^https?:\/\//.test(id) || id.length > MOST_CHARACTERS || !URL.canParse(id)) return false;
  const url = new URL(id);
  return (
    url.href === id &&
    url.pathname !== '/' &&
    url.hash === '' &&
    !id.includes('#') &&
    url.username === '' &&
    url.password === ''
  );
}

/** Milliseconds for which a document may be used, by its `Cache-Control`. */
function freshFor(header: string | null): number {
  if (header !== null && /\bno-(?:store|cache)\b/i.test(header)) return FRESH_MS.least;
  const seconds = /\bmax-age\s*=\s*"?(\d{1,9})/i.exec(header ?? '')?.[1];
  if (seconds === undefined) return FRESH_MS.usual;
  return Math.min(FRESH_MS.most, Math.max(FRESH_MS.least, Number(seconds) * 1000));
}

/** The last use that is written down of a client that has none yet: it ends so much earlier than one that has. */
const unapproved = (now: number): number => now - UNUSED_MS + UNAPPROVED_MS;

/** Forgets clients that nobody has used for 90 days, and all that users gave them. */
async function forgetUnused(tx: SystemTx, now: number): Promise<void> {
  const unused = await tx.list('oauth_clients', {
    where: { last_used_at: { lt: now - UNUSED_MS } },
    orderBy: [['last_used_at', 'asc']],
    limit: 100,
  });
  for (const { id } of unused) await removeClient(tx, id);
}

/** Removes a client; what users gave it ends on all nodes. */
async function removeClient(tx: SystemTx, id: string): Promise<boolean> {
  const families = await tx.list('oauth_families', { where: { client_id: id } });
  for (const { organisation_id: organisationId, workspace_id: workspaceId, id: entityId } of families)
    tx.changed({ organisationId, workspaceId, topic: 'oauth_families', entityId });
  await tx.remove('oauth_families', { client_id: id });
  return (await tx.remove('oauth_clients', { id })) > 0;
}
