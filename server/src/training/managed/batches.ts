/** Batches that Sluice manages: what callers ask and get. `batch-runner.ts` does the work. */
import { Readable } from 'node:stream';
import { heldCaller } from '../../auth/held-caller.ts';
import { tenantOf } from '../../auth/tenant.ts';
import { adapterContext } from '../../gateway/account-access.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { quotedName } from '../../kernel/quoted.ts';
import { headerText } from '../../kernel/text.ts';
import { type Batch, type BatchStatus, FINAL_BATCH } from '../../operations/training.ts';
import { needsOutput } from '../../providers/batch-lines.ts';
import { parseModel } from '../../providers/models.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../../providers/training.ts';
import { type Account, type ObjectAnswer, type ObjectCall, UNLIMITED } from '../../runtime/object-call.ts';
import type { TenantContext, TenantTx, Where } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { accountOfStored, adapterOf, checkModel } from '../account.ts';
import { json } from '../answer.ts';
import { shownCall } from '../dry-run.ts';
import { invalid } from '../fields.ts';
import { notFound } from '../object-ownership.ts';
import { METADATA, metadataOf, slugOf, unnamedAccount } from '../options.ts';
import { listAnswer, queryOf, readPage, unknownAfter } from '../paging.ts';
import { bodyOf, type ReadBatch, readBatch } from '../requests.ts';
import { usageRow } from '../usage/rows.ts';
import { checkBatchInput } from './batch-input.ts';
import {
  type BatchProgress,
  type BatchRow,
  type BatchWork,
  changed,
  progressOf,
  publicOf,
  refuseUnjudged,
  seconds,
  stored,
  workOf,
} from './batch-row.ts';
import { firstStep } from './batch-runner.ts';
import { type BatchServices, headerOf, inputName, openAccount, settingsOf, uuidsOf } from './batch-services.ts';

/** Config keys that only say where requests go: a config with nothing else can be left to the provider's own batch. */
const ROUTING = new Set(['provider', 'virtual_key', 'strategy', 'targets']);
/** Headers of the create request that are gateway options when the body has none of that name. */
const INHERITED = ['x-gateway-config', 'x-gateway-virtual-key'] as const;

const MAX_INPUT_PARAM = 'input_file_id';
/** Longer than a batch that has expired is followed: what it used is then looked for in another way. */
const FOLLOWED_MS = 12 * 60 * 60_000;

export interface ManagedBatchesOptions extends BatchServices {
  /** Called when a row was added or changed, so that work on it starts now. */
  readonly wake?: (id: string) => void;
}

/** How a batch will be run. */
interface Route {
  readonly mode: BatchWork['mode'];
  /** Empty when a config routes each request. */
  readonly slug: string;
  readonly options: Readonly<Record<string, string>>;
  /** Null when a config routes each request. */
  readonly account: Account | null;
  readonly adapter: BatchesAdapter | null;
}

export class ManagedBatches {
  readonly #services: ManagedBatchesOptions;

  constructor(services: ManagedBatchesOptions) {
    this.#services = services;
  }

  async create(call: ObjectCall): Promise<ObjectAnswer> {
    const read = readBatch(bodyOf(call), call.dropParams);
    const { batch } = read;
    const { keyId } = call.principal;
    const workspaceId = call.snapshot.workspaceId;
    const held = heldCaller(call.principal);
    if (keyId === null && held.token === undefined && held.userId === undefined) {
      throw new SluiceError('forbidden', 'A batch is run as an API key, a token or a user; create it as one of them.');
    }
    if (batch.model === null) throw invalid('model', 'model is required: the model to run.');
    call.named(batch.model);
    const tenant = tenantOf(call.principal, workspaceId);
    const file = await this.#input(tenant, batch.input_file_id);
    const route = await this.#route(call, read, tenant);
    if (route.account !== null) checkModel(route.account, batch.model);
    const id = `gw_batch_${uuidv7(this.#services.clock)}`;
    const prepared = route.mode === 'provider' ? this.#prepare(call, read, route, id) : null;
    if (route.mode === 'lines') refuseForLines(read, call.dropParams);
    if (call.dryRun) return this.#dryRun(call, read, route, tenant, prepared);

    const counted = (await call.limits?.(route.account, metadataOf(route.options))) ?? UNLIMITED;
    const now = this.#services.clock.now();
    const { body: _body, ...asked } = batch;
    const work: BatchWork = {
      batch: asked,
      options: route.options,
      dropParams: [...call.dropParams],
      keyId,
      ...held,
      mode: route.mode,
    };
    const expiresAt = now + settingsOf(this.#services).expiresMs;
    const progress: BatchProgress = {
      expiresAt,
      next: { line: 1, offset: 0 },
      retries: [],
      width: settingsOf(this.#services).concurrency,
      end: null,
      output: null,
      errors: null,
      begun: null,
      uploaded: null,
      told: false,
    };
    const made: Batch = {
      id,
      object: 'batch',
      endpoint: batch.endpoint,
      errors: null,
      input_file_id: file.id,
      completion_window: batch.completion_window,
      status: 'validating',
      output_file_id: null,
      error_file_id: null,
      created_at: seconds(now),
      in_progress_at: null,
      expires_at: seconds(expiresAt),
      finalizing_at: null,
      completed_at: null,
      failed_at: null,
      expired_at: null,
      cancelling_at: null,
      cancelled_at: null,
      request_counts: { total: 0, completed: 0, failed: 0 },
      metadata: batch.metadata,
      model: batch.model,
      hook_results: { before_request_hooks: [], after_request_hooks: [] },
      internal_output_file_id: null,
    };
    const { account } = route;
    const usage =
      route.mode !== 'provider' || account?.stored == null
        ? null
        : usageRow(
            call,
            {
              id,
              kind: 'batch',
              step: 'wait',
              slug: route.slug,
              account: account.stored.accountId,
              provider: account.provider.id,
              model: batch.model,
              endpoint: batch.endpoint,
              specs: counted.specs,
              metadata: { ...counted.metadata, _batch_id: id },
              dueAt: expiresAt + FOLLOWED_MS,
            },
            this.#services.clock,
            now,
          );
    await this.#services.tables.write(tenant, async (tx) => {
      await tx.insert('batches', {
        id,
        organisation_id: tenant.organisationId,
        workspace_id: workspaceId,
        provider_slug: route.slug,
        request: stored(work),
        status: made.status,
        batch: stored(made),
        ...firstStep(),
        progress: stored(progress),
        upstream_id: null,
        cancel_requested: false,
        failures: 0,
        due_at: now,
        holder: null,
        held_until: 0,
        created_by: keyId,
        created_at: now,
        last_updated_at: now,
      });
      if (usage !== null) await tx.insert('object_usage', usage);
    });
    this.#services.wake?.(id);
    return json(made);
  }

  async list(call: ObjectCall): Promise<ObjectAnswer> {
    const page = readPage(call.query, 20);
    const rows = await this.#services.tables.read(this.#tenant(call), async (tx) => {
      const last = page.after === null ? null : await tx.find('batches', { id: page.after });
      if (last === undefined) throw unknownAfter();
      const older: Where<'batches'>[] =
        last === null
          ? []
          : [{ created_at: { lt: last.created_at } }, { created_at: last.created_at, id: { lt: last.id } }];
      return tx.list('batches', {
        ...(older.length === 0 ? {} : { anyOf: older }),
        orderBy: [
          ['created_at', 'desc'],
          ['id', 'desc'],
        ],
        limit: page.limit + 1,
      });
    });
    return listAnswer({ data: rows.slice(0, page.limit).map(publicOf), has_more: rows.length > page.limit }, true);
  }

  async retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    const { include_provider_details: details } = queryOf(call.query, ['include_provider_details']);
    if (details !== undefined && details !== 'true' && details !== 'false') {
      throw invalid('include_provider_details', 'include_provider_details must be true or false.');
    }
    const row = await this.#row(call);
    if (details !== 'true') return json(publicOf(row));
    return json({ ...publicOf(row), provider_details: await this.#details(call, row) });
  }

  async cancel(call: ObjectCall): Promise<ObjectAnswer> {
    const id = idOf(call);
    const now = this.#services.clock.now();
    const batch = await this.#services.tables.write(this.#tenant(call), async (tx) => {
      const row = await mustFind(tx, id);
      if (FINAL_BATCH.has(row.status as BatchStatus)) {
        throw new SluiceError('validation', `The batch is ${row.status} and cannot be cancelled any more.`);
      }
      if (row.cancel_requested) return publicOf(row);
      const patch = { ...changed(row, 'cancelling', now), cancel_requested: true };
      // A row that is being worked on is looked at again by its worker.
      await tx.update('batches', { id }, row.holder === null ? { ...patch, due_at: now } : patch);
      return publicOf({ ...row, ...patch });
    });
    this.#services.wake?.(id);
    return json(batch);
  }

  async output(call: ObjectCall): Promise<ObjectAnswer> {
    const row = await this.#row(call);
    refuseUnjudged(call, row);
    const batch = publicOf(row);
    const files = [batch.output_file_id, batch.error_file_id].filter((id) => typeof id === 'string');
    needsOutput(batch, files);
    const tenant = this.#tenant(call);
    const { blobs } = this.#services;
    async function* whole() {
      for (const id of files) {
        const stream = await blobs.get(tenant, id);
        if (stream === null) throw new SluiceError('not_found', `The file ${id} of the batch was deleted.`);
        yield* stream as AsyncIterable<Buffer>;
      }
    }
    return {
      status: 200,
      headers: ['content-type', 'application/octet-stream'],
      body: Readable.from(whole(), { objectMode: false }),
    };
  }

  #tenant(call: ObjectCall): TenantContext {
    return tenantOf(call.principal, call.snapshot.workspaceId);
  }

  #row(call: ObjectCall): Promise<BatchRow> {
    return this.#services.tables.read(this.#tenant(call), (tx) => mustFind(tx, idOf(call)));
  }

  async #input(tenant: TenantContext, id: string): Promise<Row<'files'>> {
    if (!id.startsWith('gw_file_')) {
      throw invalid(
        MAX_INPUT_PARAM,
        'input_file_id must be a file that Sluice keeps (gw_file_…); upload it with x-gateway-provider: gateway.',
      );
    }
    const file = await this.#services.tables.read(tenant, (tx) => tx.find('files', { id }));
    if (file === undefined) throw notFound('file', MAX_INPUT_PARAM);
    if (file.purpose !== 'batch')
      throw invalid(MAX_INPUT_PARAM, 'input_file_id must be a file with the purpose batch.');
    if (file.bytes > this.#services.maxBatchBytes) {
      const most = this.#services.maxBatchBytes;
      throw invalid(
        MAX_INPUT_PARAM,
        `The file has ${file.bytes} bytes; the input of a batch may have at most ${most}.`,
      );
    }
    return file;
  }

  /** Where the requests go and who runs them. */
  async #route(call: ObjectCall, read: ReadBatch, tenant: TenantContext): Promise<Route> {
    const options: Record<string, string> = { ...read.options };
    if (slugOf(options) === null && options['x-gateway-config'] === undefined) {
      for (const name of INHERITED) {
        const value = call.header(name);
        if (value !== undefined) options[name] = value;
      }
    }
    // Limits by metadata hold for the requests of a batch as for the one that made it.
    const told = call.header(METADATA);
    if (told !== undefined) options[METADATA] ??= headerText(told);
    checkOptions(options);
    const metadata = metadataOf(options);
    if (call.copiedHeaders !== null) options[METADATA] = JSON.stringify({ ...metadata, ...call.copiedHeaders });
    const { config_id: pinned, allow_config_override: override } = call.principal.defaults;
    if (override === false && options['x-gateway-config'] !== undefined) {
      const param = 'gateway_options.x-gateway-config';
      throw invalid(param, 'This API key pins its config; leave x-gateway-config out.');
    }
    // The key's own config holds for each request, so it counts here, too.
    const config = options['x-gateway-config'] ?? pinned;
    const named = slugOf(options) ?? modelSlug(read);
    if (config === undefined && named === null && call.account?.stored == null) throw unnamedAccount();
    const slug = named ?? (config === undefined ? (call.account?.stored?.slug ?? '') : routedTo(call, config));
    if (config !== undefined) mustKnow(call, config);
    if (slug === null || (config !== undefined && named !== null)) {
      // The config decides for each request, also about guardrails; no batch of a provider would ask it.
      return { mode: 'lines', slug: named ?? '', options, account: null, adapter: null };
    }
    const account = await (config === undefined
      ? call.accountOf(slug)
      : accountOfStored(this.#services, call.snapshot, slug));
    if (config === undefined && slugOf(options) === null) options['x-gateway-provider'] = `@${slug}`;
    const { batches, files } = adapterOf(this.#services, account, tenant);
    const able = batches !== undefined && (files !== undefined || batches.createFromLines !== undefined);
    // Guardrails judge each request; no batch of a provider would ask them.
    const { input, output } = call.snapshot.guardrails;
    const guarded = input.length + output.length > 0;
    const mode = read.batch.completion_window === '24h' && able && !guarded ? 'provider' : 'lines';
    return { mode, slug, options, account, adapter: mode === 'provider' ? (batches ?? null) : null };
  }

  /** Asks the adapter whether it can express the request, before anything is stored. */
  #prepare(call: ObjectCall, read: ReadBatch, route: Route, id: string): PreparedCall | null {
    const { account, adapter } = route;
    if (account === null || adapter === null) return null;
    const context: AdapterContext = {
      ...adapterContext(this.#services, account, {
        organisationId: call.principal.organisationId,
        header: headerOf(id, route.options),
        dropParams: call.dropParams,
      }),
      uuid: uuidsOf(id),
    };
    const { files } = adapterOf(this.#services, account, this.#tenant(call));
    const input = files?.plannedId?.(inputName(id), context) ?? read.batch.input_file_id;
    // Sluice keeps the metadata of its batches: a provider that has no place for it may run them all the same.
    return adapter.prepare({ ...read.batch, input_file_id: input, metadata: null }, context);
  }

  async #dryRun(
    call: ObjectCall,
    read: ReadBatch,
    route: Route,
    tenant: TenantContext,
    prepared: PreparedCall | null,
  ): Promise<ObjectAnswer> {
    const { batch } = read;
    const input = await this.#services.blobs.get(tenant, batch.input_file_id);
    if (input === null) throw notFound('file', MAX_INPUT_PARAM);
    const { maxLineBytes } = settingsOf(this.#services);
    const { endpoint, model } = batch;
    const report = await checkBatchInput(input, { endpoint, model, maxLineBytes });
    const shown = prepared === null || route.account === null ? null : shownCall(prepared, route.account);
    return json({
      object: 'dry_run',
      operation: call.operation,
      run_by: route.mode === 'provider' ? 'provider' : 'gateway',
      target: { provider: route.account?.provider.id ?? null, slug: route.slug === '' ? null : route.slug, model },
      validation: {
        valid: report.errorCount === 0,
        requests: report.total,
        error_count: report.errorCount,
        errors: report.errors,
      },
      request: shown,
    });
  }

  async #details(call: ObjectCall, row: BatchRow): Promise<object> {
    const { mode } = workOf(row);
    const about = {
      run_by: mode === 'provider' ? 'provider' : 'gateway',
      provider_slug: row.provider_slug === '' ? null : row.provider_slug,
      provider_batch_id: row.upstream_id,
      provider_file_id: progressOf(row).uploaded,
    };
    if (row.upstream_id === null) return { ...about, batch: null };
    const { adapter, context } = await openAccount(this.#services, row, call.signal);
    return { ...about, batch: (await adapter.batches?.retrieve(row.upstream_id, context)) ?? null };
  }
}

const idOf = (call: ObjectCall): string => call.params.batch_id ?? call.params.id ?? '';

async function mustFind(tx: TenantTx, id: string): Promise<BatchRow> {
  const row = await tx.find('batches', { id });
  if (row === undefined) throw notFound('batch');
  return row;
}

/** The slug in `model` of the body. */
function modelSlug(read: ReadBatch): string | null {
  const { model } = read.batch.body;
  return typeof model === 'string' ? parseModel(model).slug : null;
}

function mustKnow(call: ObjectCall, reference: string): void {
  const param = 'gateway_options.x-gateway-config';
  if (reference.trimStart().startsWith('{')) {
    throw invalid(param, 'Name a saved config by its slug (pc-…): the batch outlives this request.');
  }
  const known = call.snapshot.configs.get(reference);
  if (known === undefined) {
    throw invalid(param, `No config ${quotedName(reference)} exists in this workspace.`);
  }
  if (known.broken !== null) throw new SluiceError('out_of_service', known.broken);
}

/** The one stored provider a config names and nothing besides; null when the config does more than that. */
function routedTo(call: ObjectCall, reference: string): string | null {
  let node: JsonObject | undefined = call.snapshot.configs.get(reference)?.config as JsonObject | undefined;
  for (let depth = 0; node !== undefined && depth < 8; depth++) {
    if (Object.keys(node).some((key) => !ROUTING.has(key))) return null;
    const { provider, virtual_key: key, targets } = node;
    if (typeof key === 'string') return key;
    if (typeof provider === 'string') return provider.startsWith('@') ? provider.slice(1) : null;
    if (!Array.isArray(targets) || targets.length !== 1 || !isObject(targets[0])) return null;
    node = targets[0];
  }
  return null;
}

/** Options are kept with the batch, in the open, and hold for each of its requests. */
function checkOptions(options: Readonly<Record<string, string>>): void {
  for (const name of Object.keys(options)) {
    if (!/secret|token|password|credential|access-key|private|authorization/.test(name)) continue;
    const param = `gateway_options.${name}`;
    throw invalid(param, `${param} is a secret; store it with the provider instead of sending it with a batch.`);
  }
}

/** Requests that Sluice runs itself know no job of a provider. */
function refuseForLines({ batch }: ReadBatch, dropParams: ReadonlySet<string>): void {
  const { job_name, role_arn, output_data_config, extra } = batch;
  for (const [name, value] of Object.entries({ job_name, role_arn, output_data_config, ...extra })) {
    if (value === null || value === undefined || dropParams.has(name)) continue;
    throw new SluiceError(
      'unsupported_parameter',
      `${name} belongs to a batch that the provider runs; this one is run by Sluice. Leave it out.`,
      { param: name },
    );
  }
}
