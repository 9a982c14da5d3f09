/** Batches at a provider. */
import { type Batch, FINAL_BATCH } from '../../operations/training.ts';
import type { BatchesAdapter } from '../../providers/training.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import { checkModel } from '../account.ts';
import { json } from '../answer.ts';
import { dryRunAnswer } from '../dry-run.ts';
import { invalid } from '../fields.ts';
import { listAnswer, ownedPage, queryOf, readPage, unknownAfter } from '../paging.ts';
import type { ReadBatch } from '../requests.ts';
import type { TrainingServices } from '../services.ts';
import { begun } from '../usage/begin.ts';
import { cursorFault, finalState } from './final.ts';
import { checkLines, checkNames } from './line-check.ts';
import {
  about,
  checkFile,
  claimNew,
  guarded,
  namedAccount,
  ownId,
  type ProviderAccess,
  part,
  providerAccess,
} from './provider-access.ts';

export class ProviderBatches {
  readonly #services: TrainingServices;

  constructor(services: TrainingServices) {
    this.#services = services;
  }

  async create(call: ObjectCall, { batch, options }: ReadBatch): Promise<ObjectAnswer> {
    queryOf(call.query, []);
    if (batch.completion_window === 'immediate') {
      throw invalid(
        'completion_window',
        'completion_window immediate needs a file that Sluice keeps (gw_file_…): upload it with x-gateway-provider: gateway, or send 24h.',
      );
    }
    if (options !== null) {
      throw invalid(
        'input_file_id',
        'A batch with gateway_options needs a file that Sluice keeps (gw_file_…): upload it with x-gateway-provider: gateway.',
      );
    }
    const account = namedAccount(call);
    if (batch.model !== null) checkModel(account, batch.model);
    return guarded(account, async () => {
      const side = providerAccess(this.#services, call, account);
      const batches = part(side, call, 'batches');
      if (batch.model !== null) call.named(batch.model);
      const prepared = batches.prepare(batch, side.context);
      if (batches.createFromLines !== undefined) {
        throw invalid(
          'input_file_id',
          'Batches of this provider are made of files that Sluice keeps (gw_file_…): upload the file with x-gateway-provider: gateway.',
        );
      }
      await checkFile(side, batch.input_file_id, 'input_file_id');
      checkNames(side, batch);
      if (call.dryRun) return dryRunAnswer(call, account, batch.model, prepared);
      // After the dry run, which calls no provider.
      await checkLines(side, batch, this.#services.maxUploadBytes);
      const about = { kind: 'batch', model: batch.model, endpoint: batch.endpoint } as const;
      const created = await begun(this.#services, call, side, about, async () => {
        const made = await batches.create(batch, side.context);
        await claimNew(side, 'batch', made.id);
        return made;
      });
      return this.#answer(side, created, false);
    });
  }

  list(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#run(call, async (side, batches) => {
      const page = readPage(call.query, 20);
      const { ownership: ledger, context } = side;
      const shown = (one: Batch) => withDetails(one, false);
      if (ledger === null || ledger.ownsAll('batch')) {
        const found = await cursorFault(page, () => batches.list(page, context));
        await ledger?.learn('file', filesOf(found.data));
        return listAnswer({ ...found, data: found.data.map(shown) }, true);
      }
      const after = page.after === null ? null : await ledger.find('batch', page.after);
      if (page.after !== null && after === null) throw unknownAfter();
      const own = await ownedPage({
        page: { after, limit: page.limit },
        list: (upstream) => cursorFault(upstream, () => batches.list(upstream, context)),
        owned: (ids) => ledger.owned('batch', ids),
        remaining: await ledger.count('batch', after),
      });
      await ledger.learn('file', filesOf(own.data));
      return listAnswer({ ...own, data: own.data.map(shown) }, true);
    });
  }

  retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, batches, id) => {
      const { include_provider_details: details = 'false' } = queryOf(call.query, ['include_provider_details']);
      if (details !== 'true' && details !== 'false') {
        throw invalid('include_provider_details', 'include_provider_details must be true or false.');
      }
      return this.#answer(side, await batches.retrieve(id, side.context), details === 'true');
    });
  }

  cancel(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, batches, id) => {
      queryOf(call.query, []);
      const batch = await finalState(
        'batch',
        () => batches.cancel(id, side.context),
        async () => (await batches.retrieve(id, side.context)).status,
        FINAL_BATCH,
      );
      return this.#answer(side, batch, false);
    });
  }

  output(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, batches, id) => {
      queryOf(call.query, []);
      const body = await batches.output(id, side.context);
      return { status: 200, headers: ['content-type', 'application/octet-stream'], body };
    });
  }

  #run(
    call: ObjectCall,
    run: (side: ProviderAccess, batches: BatchesAdapter) => Promise<ObjectAnswer>,
  ): Promise<ObjectAnswer> {
    const account = namedAccount(call);
    return guarded(account, async () => {
      const side = providerAccess(this.#services, call, account);
      return run(side, part(side, call, 'batches'));
    });
  }

  #one(
    call: ObjectCall,
    run: (side: ProviderAccess, batches: BatchesAdapter, id: string) => Promise<ObjectAnswer>,
  ): Promise<ObjectAnswer> {
    return this.#run(call, async (side, batches) => {
      const id = await ownId(side, 'batch', call.params.batch_id ?? '');
      return about('batch', () => run(side, batches, id));
    });
  }

  /** The batch; files it wrote become the workspace's. */
  async #answer(side: ProviderAccess, batch: Batch, details: boolean): Promise<ObjectAnswer> {
    await side.ownership?.learn('file', filesOf([batch]));
    return json(withDetails(batch, details));
  }
}

const filesOf = (batches: readonly Batch[]) => batches.flatMap((one) => [one.output_file_id, one.error_file_id]);

/** `provider_details` only for who asks for them. */
function withDetails(batch: Batch, details: boolean): Batch {
  if (details || batch.provider_details === undefined) return batch;
  const { provider_details: _left, ...rest } = batch;
  return rest as Batch;
}
