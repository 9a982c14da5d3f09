/** What provider-backed files, jobs and batches share: the account, its adapter, its calls and what the workspace owns. */

import { adapterContext } from '../../gateway/account-access.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { AdapterContext, TrainingAdapter } from '../../providers/training.ts';
import type { Account, ObjectCall } from '../../runtime/object-call.ts';
import { adapterOf } from '../account.ts';
import { cleaned, isMissing } from '../errors.ts';
import { notFound, type ObjectOwnership, ownerOf, ownershipOf, type TrainedKind } from '../object-ownership.ts';
import type { TrainingServices } from '../services.ts';

export interface ProviderAccess {
  readonly account: Account;
  readonly adapter: TrainingAdapter;
  readonly context: AdapterContext;
  /** Null for a caller's own token, and for a provider that keeps workspaces apart itself. */
  readonly ownership: ObjectOwnership | null;
}

/** The account a request names; throws what the caller has to do when it names none. */
export function namedAccount(call: ObjectCall): Account {
  if (call.account !== null) return call.account;
  throw call.unnamed ?? new SluiceError('malformed_call', 'No provider is named; send x-gateway-provider: @slug.');
}

export function providerAccess(
  services: TrainingServices,
  call: ObjectCall,
  account: Account,
  header: (name: string) => string | undefined = call.header,
): ProviderAccess {
  const owner = ownerOf(call);
  return {
    account,
    adapter: adapterOf(services, account, owner.tenant),
    context: adapterContext(services, account, {
      organisationId: call.principal.organisationId,
      header,
      dropParams: call.dropParams,
      signal: call.signal,
      attempted: (attempt) => call.attempted(attempt),
      moved: call.moved === undefined ? undefined : (sent, received) => call.moved?.(sent, received),
    }),
    ownership: ownershipOf(services, account, owner),
  };
}

/** The part of the adapter an operation needs; 501 without a call when the provider has none. */
export function part<N extends keyof TrainingAdapter>(
  side: ProviderAccess,
  call: ObjectCall,
  name: N,
): NonNullable<TrainingAdapter[N]> {
  const found = side.adapter[name];
  if (found === undefined) throw unsupported(side, call);
  return found;
}

export function unsupported(side: ProviderAccess, call: ObjectCall): SluiceError {
  return new SluiceError(
    'unsupported_operation',
    `Provider ${side.account.provider.id} does not offer the operation ${call.operation}.`,
  );
}

/** Runs calls of one account: credentials never come back in an error. */
export async function guarded<T>(account: Account, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw cleaned(error, account.secrets);
  }
}

/** A call about one object: what the provider does not know (any more) is 404 like what the ledger does not. */
export async function about<T>(kind: TrainedKind, run: () => Promise<T>): Promise<T> {
  try {
    return await run();
  } catch (error) {
    throw isMissing(error) ? notFound(kind) : error;
  }
}

/** The id as the provider knows it; 404 without a call when it is not the workspace's. */
export async function ownId(side: ProviderAccess, kind: TrainedKind, id: string): Promise<string> {
  return side.ownership === null ? id : side.ownership.must(kind, id);
}

/**
 * Whether a file a create request names may be used: it is the workspace's own, or an object URI that leads to nobody
 * else's object where the provider reads from object storage (which checks the bucket).
 */
export async function checkFile(side: ProviderAccess, id: string | null, param: string): Promise<string | null> {
  if (id === null || side.ownership === null) return id;
  const uri = side.adapter.files?.objectUris === true ? objectUri(id) : null;
  const open =
    uri === null ? (await side.ownership.find('file', id)) !== null : (await side.ownership.foreignAt([uri])) === null;
  if (open) return id;
  throw notFound('file', param);
}

/**
 * The plain URI an id stands for, null when it is none. Read as the providers read it, decoded once and only when it is
 * not plain: what the ledger is asked must be what is opened, however the id is written.
 */
function objectUri(id: string): string | null {
  let text = id;
  if (!URI.test(id)) {
    try {
      text = decodeURIComponent(id);
    } catch {
      return null;
    }
  }
  return URI.test(text) ? text : null;
}

const URI = /^[a-z][a-z0-9+.-]{1,20}:\/\/[^/]+\/./;

/** Notes whose a new object is. One that another workspace has already is not told: a provider took it for a repetition. */
export async function claimNew(side: ProviderAccess, kind: TrainedKind, id: string): Promise<void> {
  const foreign = (await side.ownership?.claim(kind, [id])) ?? [];
  if (foreign.length === 0) return;
  throw new SluiceError('conflict', 'The provider answered with an object that exists already; send other names.');
}
