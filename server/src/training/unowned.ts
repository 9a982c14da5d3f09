/** Objects at a provider account that no workspace owns, for administrators who give them an owner. */

import { adapterContext } from '../gateway/account-access.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { AdapterContext, TrainingAdapter } from '../providers/training.ts';
import { accountOfStored } from './account.ts';
import type { TrainedKind } from './object-ownership.ts';
import { guarded } from './provider-backed/provider-access.ts';
import type { TrainingServices } from './services.ts';

const PAGE = 100;
/** Pages of the provider's list that one call reads: further ones are another call's. */
const MOST_PAGES = 20;

export interface AccountPlace {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly slug: string;
  /** In the ledger. */
  readonly account: string;
}

interface Listed {
  readonly id: string;
  readonly created_at: number;
}

interface ListedPage {
  readonly data: readonly Listed[];
  readonly after: string | null;
}

/** At most `limit` objects from `after` on, and where to go on; null when the list has ended. */
export async function listUnowned(
  services: TrainingServices,
  place: AccountPlace,
  kind: TrainedKind,
  after: string | null,
  limit: number,
): Promise<ListedPage> {
  const snapshot = await services.runtime.workspace(place.organisationId, place.workspaceId);
  const account = await accountOfStored(services, snapshot, place.slug);
  const context = adapterContext(services, account, { organisationId: place.organisationId });
  const list = listerOf(account.provider.training ?? {}, context, kind);
  return guarded(account, async () => {
    const data: Listed[] = [];
    let from = after;
    for (let pages = 0; pages < MOST_PAGES; pages++) {
      const page = await list(from);
      const free = await unownedOf(services, place.account, kind, page.data);
      for (const one of free) {
        data.push(one);
        if (data.length === limit)
          return { data, after: page.after === null && one === page.data.at(-1) ? null : one.id };
      }
      from = page.after;
      if (from === null) break;
    }
    return { data, after: from };
  });
}

function listerOf(
  { files, jobs, batches }: TrainingAdapter,
  context: AdapterContext,
  kind: TrainedKind,
): (after: string | null) => Promise<ListedPage> {
  if (kind === 'file' && files !== undefined) {
    let all: readonly Listed[] | null = null;
    return async (after) => {
      all ??= await files.list(null, context);
      const data = all.slice(after === null ? 0 : all.findIndex(({ id }) => id === after) + 1).slice(0, PAGE);
      return { data, after: data.at(-1) === all.at(-1) ? null : (data.at(-1)?.id ?? null) };
    };
  }
  const part = kind === 'job' ? jobs : kind === 'batch' ? batches : undefined;
  if (part === undefined) {
    throw new SluiceError('validation', `The provider of this integration lists no objects of the kind ${kind}.`, {
      param: 'kind',
    });
  }
  return async (after) => {
    const { data, has_more } = await part.list({ after, limit: PAGE }, context);
    return { data, after: has_more ? (data.at(-1)?.id ?? null) : null };
  };
}

async function unownedOf(
  { tables }: TrainingServices,
  account: string,
  kind: TrainedKind,
  listed: readonly Listed[],
): Promise<Listed[]> {
  if (listed.length === 0) return [];
  const ids = listed.map(({ id }) => id);
  const rows = await tables.systemRead((tx) =>
    tx.list('object_owners', { where: { account, kind, object_id: { in: ids } } }),
  );
  const owned = new Set(rows.map(({ object_id }) => object_id));
  return listed.filter(({ id }) => !owned.has(id)).map(({ id, created_at }) => ({ id, created_at }));
}
