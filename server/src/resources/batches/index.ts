/**
 * Batches that Sluice runs, as a data service beside it may write them: on `/v2` only, with an
 * organisation-wide credential. Everything else about batches is the data plane's.
 */
import { z } from 'zod';
import { BATCH_STAMPS, BATCH_STATUSES, mayBecome } from '../../operations/batch-states.ts';
import { type BatchStatus, FINAL_BATCH } from '../../operations/training.ts';
import { text } from '../body-fields.ts';
import { refuse, unknownReference } from '../common.ts';
import { changedColumns, type Resource } from '../define.ts';
import { notFound } from '../look-up.ts';
import { action } from '../resource.ts';

const params = z.strictObject({ id: text(255, 1) });
const count = z.int().min(0).max(2_147_483_647);
const fileId = text(255, 1);

const body = z
  .strictObject({
    internal_output_file_id: fileId.nullable().optional(),
    status: z.enum(BATCH_STATUSES).optional(),
    input_file_id: fileId.optional(),
    output_file_id: fileId.optional(),
    error_file_id: fileId.optional(),
    request_counts: z.strictObject({ total: count, completed: count, failed: count }).optional(),
    errors: z
      .strictObject({
        object: z.literal('list').optional(),
        data: z
          .array(
            z.strictObject({
              code: text(255).nullable().optional(),
              message: text(4096),
              param: text(255).nullable().optional(),
              line: count.nullable().optional(),
            }),
          )
          .max(100),
      })
      .optional(),
  })
  .refine((value) => Object.keys(value).length > 0, { error: 'needs at least one field' });

const FILES = ['internal_output_file_id', 'input_file_id', 'output_file_id', 'error_file_id'] as const;

const update = action({
  id: 'batches.update',
  method: 'PUT',
  path: '/batches/:id',
  prefixes: ['/v2'],
  summary: 'Update a batch that Sluice keeps',
  description: 'For a data service that runs beside Sluice; not for callers of the data plane.',
  tag: 'Batches',
  auth: 'key_or_login',
  scopes: ['organisation_settings.update'],
  tenant: 'organisation',
  params,
  query: null,
  body,
  response: z.strictObject({}),
  writes: true,
  audit: { action: 'update', resource: 'batch' },
  async run(call) {
    const { tx, params: given, clock } = call;
    const row = await tx.find('batches', { id: given.id });
    if (row === undefined) throw notFound();
    const { status = row.status as BatchStatus, errors, ...rest } = call.body;
    const from = row.status as BatchStatus;
    if (status !== from && !mayBecome(from, status)) {
      throw refuse('status', `a batch that is ${from} cannot become ${status}`);
    }
    for (const name of FILES) {
      const id = call.body[name];
      if (typeof id !== 'string') continue;
      if ((await tx.find('files', { id, workspace_id: row.workspace_id })) === undefined) {
        throw unknownReference(name, 'file');
      }
    }
    const now = clock.now();
    const stamp = status === from ? undefined : BATCH_STAMPS[status];
    const batch = {
      ...row.batch,
      ...rest,
      status,
      ...(errors === undefined ? {} : { errors: { ...errors, object: 'list' } }),
      ...(stamp === undefined ? {} : { [stamp]: Math.floor(now / 1000) }),
    };
    call.audit(row.id, changedColumns('batches', row, { status, batch }));
    await tx.update(
      'batches',
      { id: row.id },
      {
        status,
        batch,
        last_updated_at: now,
        // No work is left on a batch that has ended.
        ...(FINAL_BATCH.has(status) ? { step: 'done' } : {}),
      },
    );
    // What the provider's batch used is read by whoever follows it now.
    if (FINAL_BATCH.has(status)) await tx.update('object_usage', { id: row.id, step: 'wait' }, { due_at: 0 });
    return {};
  },
});

export const batches: Resource = { actions: [update] };
