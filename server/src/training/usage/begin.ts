/** The beginning of a batch or job at a provider: asked of the limits first, and followed from before it exists. */
import { SluiceError } from '../../kernel/errors.ts';
import { type ObjectCall, UNLIMITED } from '../../runtime/object-call.ts';
import { ownerOf } from '../object-ownership.ts';
import type { ProviderAccess } from '../provider-backed/provider-access.ts';
import type { TrainingServices } from '../services.ts';
import { usageRow } from './rows.ts';
import { CREATION_MS, FIRST_LOOK_MS } from './work.ts';

/** Without an answer the provider may have done what it was asked. */
const UNANSWERED = new Set<SluiceError['kind']>([
  'timeout',
  'client_closed',
  'upstream_unreachable',
  'upstream_cut',
  'upstream_invalid',
  'internal',
]);

/**
 * Makes an object at a provider with `create`, under the usage limits it will count in. With a credential of the caller's
 * own, Sluice cannot ask for it later: the limits note that it is not counted.
 */
export async function begun<T extends { readonly id: string }>(
  services: Pick<TrainingServices, 'tables' | 'clock'>,
  call: ObjectCall,
  { account }: Pick<ProviderAccess, 'account'>,
  about: { readonly kind: 'batch' | 'job'; readonly model: string | null; readonly endpoint: string | null },
  create: () => Promise<T>,
): Promise<T> {
  const { specs, metadata } = (await call.limits?.(account, null)) ?? UNLIMITED;
  const { stored, provider } = account;
  if (stored === null) {
    const made = await create();
    call.uncounted?.();
    return made;
  }
  const { tables, clock } = services;
  const { tenant } = ownerOf(call);
  const now = await tables.now();
  const { slug, accountId } = stored;
  const row = usageRow(
    call,
    {
      ...about,
      step: 'watch',
      slug,
      account: accountId,
      provider: provider.id,
      specs,
      metadata,
      dueAt: now + CREATION_MS,
    },
    clock,
    now,
  );
  const { id } = row;
  await tables.write(tenant, (tx) => tx.insert('object_usage', row));
  let made: T;
  try {
    made = await create();
  } catch (error) {
    const open = !(error instanceof SluiceError) || UNANSWERED.has(error.kind);
    if (!open) await tables.write(tenant, (tx) => tx.remove('object_usage', { id }));
    throw error;
  }
  await tables.write(tenant, async (tx) => {
    const same = { account: accountId, kind: about.kind, object_id: made.id };
    // A provider that knows a request again answers with what it made before, which is followed already.
    const known = await tx.list('object_usage', { where: same, limit: 1 });
    if (known.length > 0) await tx.remove('object_usage', { id });
    else await tx.update('object_usage', { id }, { object_id: made.id, due_at: now + FIRST_LOOK_MS });
  });
  return made;
}
