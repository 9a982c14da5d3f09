import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';

export type Row = Record<string, unknown>;

const text = z.string().min(1);
const integer = z.number().int();
const auto = z.literal('auto');
const metadata = z.record(z.string().max(64), z.string().max(512));

const hyperparameters = z.strictObject({
  n_epochs: z.union([integer.min(1).max(50), auto]).optional(),
  batch_size: z.union([integer.min(1).max(256), auto]).optional(),
  learning_rate_multiplier: z.union([z.number().positive(), auto]).optional(),
});
const preference = hyperparameters.extend({ beta: z.union([z.number().positive().max(2), auto]).optional() });

/** Body of `POST /fine_tuning/jobs` by the published definition, with one member a later one might add. */
export const CREATE_JOB = z.strictObject({
  model: text,
  training_file: text,
  validation_file: text.nullable().optional(),
  suffix: z.string().min(1).max(64).nullable().optional(),
  seed: integer.min(0).max(2_147_483_647).nullable().optional(),
  method: z
    .discriminatedUnion('type', [
      z.strictObject({
        type: z.literal('supervised'),
        supervised: z.strictObject({ hyperparameters: hyperparameters.optional() }).optional(),
      }),
      z.strictObject({
        type: z.literal('dpo'),
        dpo: z.strictObject({ hyperparameters: preference.optional() }).optional(),
      }),
    ])
    .optional(),
  integrations: z
    .array(
      z.strictObject({
        type: z.literal('wandb'),
        wandb: z.strictObject({
          project: text,
          name: z.string().nullable().optional(),
          entity: z.string().nullable().optional(),
          tags: z.array(z.string()).optional(),
        }),
      }),
    )
    .nullable()
    .optional(),
  metadata: metadata.nullable().optional(),
  flavour: z.unknown().optional(),
});

const ENDPOINTS = [
  '/v1/responses',
  '/v1/chat/completions',
  '/v1/embeddings',
  '/v1/completions',
  '/v1/moderations',
  '/v1/images/generations',
  '/v1/images/edits',
  '/v1/videos',
] as const;

export const CREATE_BATCH = z.strictObject({
  input_file_id: text,
  endpoint: z.enum(ENDPOINTS),
  completion_window: z.literal('24h'),
  metadata: metadata.nullable().optional(),
  output_expires_after: z.strictObject({ anchor: z.literal('created_at'), seconds: integer }).optional(),
});

/** What differs between servers that speak this shape. */
export interface ObjectRoutes {
  /** Path before `/files`. */
  readonly prefix: string;
  /** Query every call must have, and no other value of it. */
  readonly query?: Readonly<Record<string, string>>;
  readonly createJob: z.ZodType | null;
  readonly createBatch: z.ZodType;
  readonly purposes: readonly [string, ...string[]];
  /** Query names of the file list; of the batch list. */
  readonly fileQuery: readonly string[];
  readonly batchQuery: readonly string[];
  readonly uploads: boolean;
  /** Status of creations, and of a deletion (204 has no body). */
  readonly created?: 200 | 201;
  readonly deleted?: 200 | 204;
  /** Members of an answer that this server names otherwise. */
  readonly job?: (row: Row) => Row;
}

/** Rows as the provider would answer them, by id; those made last come first in lists. */
export interface ObjectState {
  readonly files: Map<string, Row>;
  readonly contents: Map<string, Buffer>;
  readonly jobs: Map<string, Row>;
  readonly events: Map<string, Row[]>;
  readonly checkpoints: Map<string, Row[]>;
  readonly batches: Map<string, Row>;
  /** Parts by upload. */
  readonly uploads: Map<string, Row & { parts: Buffer[] }>;
  /** Field names of the multipart bodies, in order, and the file's name and type. */
  readonly forms: { readonly fields: string[]; readonly filename: string; readonly type: string }[];
  /** The next call answers this. */
  fail: { readonly status: number; readonly body: unknown; readonly headers?: Record<string, string> } | null;
}

export function objectState(): ObjectState {
  return {
    files: new Map(),
    contents: new Map(),
    jobs: new Map(),
    events: new Map(),
    checkpoints: new Map(),
    batches: new Map(),
    uploads: new Map(),
    forms: [],
    fail: null,
  };
}

export const openAiError = (message: string, more: Row = {}): Row => ({
  error: { message, type: 'invalid_request_error', param: null, code: null, ...more },
});

const CREATED = 1_767_225_600;

/** The parts of a multipart body as their headers say, read without leniency. */
function partsOf(request: Received): { readonly fields: string[]; filename: string; type: string; content: Buffer } {
  const boundary = /boundary=([^;]+)$/.exec(String(request.headers['content-type']))?.[1] ?? '';
  const text_ = request.body.toString('latin1');
  const out = { fields: [] as string[], filename: '', type: '', content: Buffer.alloc(0) };
  for (const part of text_.split(`--${boundary}\r\n`).slice(1)) {
    const end = part.indexOf('\r\n\r\n');
    const head = part.slice(0, end);
    out.fields.push(/ name="([^"]*)"/.exec(head)?.[1] ?? '');
    const filename = /filename="([^"]*)"/.exec(head)?.[1];
    if (filename === undefined) continue;
    out.filename = Buffer.from(filename, 'latin1').toString('utf8');
    out.type = /content-type: (.*)$/i.exec(head)?.[1] ?? '';
    const tail = part.lastIndexOf(`\r\n--${boundary}--`);
    out.content = Buffer.from(part.slice(end + 4, tail), 'latin1');
  }
  return out;
}

/** The routes of files, uploads, fine-tuning jobs and batches of OpenAI's definition (2.3.0) over `state`. */
export function objectRoutes(options: ObjectRoutes, state: ObjectState): StrictRoute[] {
  let ids = 0;
  const next = (prefix: string): string => `${prefix}${++ids}`;
  const at = (path: string): RegExp => new RegExp(`^${options.prefix}${path.replace(':id', '([A-Za-z0-9_-]+)')}$`);
  const queryNames = [...Object.keys(options.query ?? {})];
  const route = (
    method: string,
    path: string,
    body: z.ZodType | null,
    answer: (id: string, body: Row, response: ServerResponse, request: Received, query: URLSearchParams) => void,
    more: Partial<StrictRoute> & { readonly names?: readonly string[] } = {},
  ): StrictRoute => ({
    method,
    path: at(path),
    query: [...queryNames, ...(more.names ?? [])],
    body,
    ...(more.form === undefined ? {} : { form: more.form }),
    ...(more.chunked === undefined ? {} : { chunked: more.chunked }),
    answer(parsed, response, request) {
      const url = new URL(request.path, 'http://upstream');
      for (const [name, value] of Object.entries(options.query ?? {})) {
        if (url.searchParams.get(name) !== value) throw new Error(`query ${name} must be ${value}`);
      }
      const { fail } = state;
      if (fail !== null) {
        state.fail = null;
        const bytes = Buffer.from(typeof fail.body === 'string' ? fail.body : JSON.stringify(fail.body));
        response.writeHead(fail.status, { 'content-type': 'application/json', ...fail.headers });
        response.end(bytes);
        return;
      }
      const id = at(path).exec(url.pathname)?.[1] ?? '';
      answer(id, parsed, response, request, url.searchParams);
    },
  });
  const missing = (response: ServerResponse, id: string): void =>
    sendJson(response, 404, openAiError(`No such object: ${id}`, { param: 'id' }));
  const found = (rows: Map<string, Row>, id: string, response: ServerResponse, use: (row: Row) => void): void => {
    const row = rows.get(id);
    if (row === undefined) missing(response, id);
    else use(row);
  };
  const newest = (rows: Iterable<Row>): Row[] => [...rows].reverse();
  const page = (rows: Row[], query: URLSearchParams, response: ServerResponse, usual: number, ends = true): void => {
    const after = query.get('after');
    const limit = Number(query.get('limit') ?? usual);
    if (!Number.isInteger(limit) || limit < 1) throw new Error(`limit ${query.get('limit')}`);
    const from = after === null ? 0 : rows.findIndex((row) => row.id === after) + 1;
    if (after !== null && from === 0) {
      sendJson(response, 400, openAiError(`Unknown cursor ${after}`, { param: 'after' }));
      return;
    }
    const data = rows.slice(from, from + limit);
    const names = ends ? { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null } : {};
    sendJson(response, 200, { object: 'list', data, has_more: from + limit < rows.length, ...names });
  };
  const created = options.created ?? 200;
  const shown = options.job ?? ((row: Row) => row);

  const file = z.strictObject({ bytes: integer.min(0) });
  const addFile = (filename: string, purpose: unknown, content: Buffer): Row => {
    const id = next('file-');
    const row = {
      id,
      object: 'file',
      bytes: content.length,
      created_at: CREATED + ids,
      expires_at: null,
      filename,
      purpose,
      status: 'processed',
      status_details: null,
    };
    state.files.set(id, row);
    state.contents.set(id, content);
    return row;
  };

  const files: StrictRoute[] = [
    route(
      'POST',
      '/files',
      z.strictObject({ purpose: z.enum(options.purposes), file }),
      (_id, body, response, request) => {
        const form = partsOf(request);
        state.forms.push(form);
        sendJson(response, created, addFile(form.filename, body.purpose, form.content));
      },
      { form: true, chunked: true },
    ),
    route(
      'GET',
      '/files',
      null,
      (_id, _body, response, _request, query) => {
        const purpose = query.get('purpose');
        const rows = newest(state.files.values()).filter((row) => purpose === null || row.purpose === purpose);
        page(rows, query, response, 10_000);
      },
      { names: options.fileQuery },
    ),
    route('GET', '/files/:id', null, (id, _body, response) =>
      found(state.files, id, response, (row) => sendJson(response, 200, row)),
    ),
    route('GET', '/files/:id/content', null, (id, _body, response) => {
      const content = state.contents.get(id);
      if (content === undefined) return missing(response, id);
      response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': content.length });
      response.end(content);
    }),
    route('DELETE', '/files/:id', null, (id, _body, response) =>
      found(state.files, id, response, () => {
        state.files.delete(id);
        state.contents.delete(id);
        if (options.deleted === 204) response.writeHead(204).end();
        else sendJson(response, 200, { id, object: 'file', deleted: true });
      }),
    ),
  ];

  const upload = (id: string, response: ServerResponse, use: (one: Row & { parts: Buffer[] }) => void): void => {
    const row = state.uploads.get(id);
    if (row === undefined) {
      missing(response, id);
      return;
    }
    if (row.status !== 'pending') throw new Error(`upload ${id} is ${String(row.status)}`);
    use(row);
  };
  const uploads: StrictRoute[] = [
    route(
      'POST',
      '/uploads',
      z.strictObject({ filename: text, purpose: z.enum(options.purposes), bytes: integer.min(1), mime_type: text }),
      (_id, body, response) => {
        const id = next('upload_');
        const row = { id, object: 'upload', status: 'pending', created_at: CREATED, ...body, parts: [] as Buffer[] };
        state.uploads.set(id, row);
        sendJson(response, created, { ...row, parts: undefined });
      },
    ),
    route(
      'POST',
      '/uploads/:id/parts',
      z.strictObject({ data: file }),
      (id, _body, response, request) =>
        upload(id, response, (row) => {
          row.parts.push(partsOf(request).content);
          sendJson(response, 200, {
            id: `part_${row.parts.length}`,
            object: 'upload.part',
            created_at: CREATED,
            upload_id: id,
          });
        }),
      { form: true },
    ),
    route(
      'POST',
      '/uploads/:id/complete',
      z.strictObject({ part_ids: z.array(text).min(1), md5: text.optional() }),
      (id, body, response) =>
        upload(id, response, (row) => {
          const content = Buffer.concat(row.parts);
          const order = row.parts.map((_, index) => `part_${index + 1}`);
          if (JSON.stringify(body.part_ids) !== JSON.stringify(order)) throw new Error('parts out of order');
          if (content.length !== row.bytes) throw new Error(`announced ${String(row.bytes)}, got ${content.length}`);
          row.status = 'completed';
          sendJson(response, 200, {
            id,
            object: 'upload',
            status: 'completed',
            file: addFile(String(row.filename), row.purpose, content),
          });
        }),
    ),
    route('POST', '/uploads/:id/cancel', null, (id, _body, response) =>
      upload(id, response, (row) => {
        row.status = 'cancelled';
        sendJson(response, 200, { id, object: 'upload', status: 'cancelled' });
      }),
    ),
  ];

  const job = (id: string, response: ServerResponse, use: (row: Row) => void): void =>
    found(state.jobs, id, response, use);
  const act = (name: string, status: string): StrictRoute =>
    route('POST', `/fine_tuning/jobs/:id/${name}`, null, (id, _body, response) =>
      job(id, response, (row) => {
        if (['succeeded', 'failed', 'cancelled'].includes(String(row.status))) {
          return sendJson(response, 400, openAiError(`Job ${id} has ended.`));
        }
        row.status = status;
        sendJson(response, 200, shown(row));
      }),
    );
  const listOf = (rows: Map<string, Row[]>, name: string, usual: number): StrictRoute =>
    route(
      'GET',
      `/fine_tuning/jobs/:id/${name}`,
      null,
      (id, _body, response, _request, query) =>
        job(id, response, () => page(newest(rows.get(id) ?? []), query, response, usual, name === 'checkpoints')),
      { names: ['after', 'limit'] },
    );
  const jobs: StrictRoute[] =
    options.createJob === null
      ? []
      : [
          route('POST', '/fine_tuning/jobs', options.createJob, (_id, body, response) => {
            const id = next('ftjob-');
            const row: Row = {
              id,
              object: 'fine_tuning.job',
              created_at: CREATED + ids,
              error: {},
              estimated_finish: null,
              fine_tuned_model: null,
              finished_at: null,
              hyperparameters: { n_epochs: 'auto', batch_size: 'auto', learning_rate_multiplier: 'auto' },
              integrations: [],
              model: body.model,
              organization_id: 'org-123',
              result_files: [],
              seed: 42,
              status: 'validating_files',
              trained_tokens: null,
              training_file: body.training_file,
              user_provided_suffix: body.suffix ?? null,
              validation_file: body.validation_file ?? null,
              ...(body.method === undefined ? {} : { method: body.method }),
              ...(body.metadata === undefined ? {} : { metadata: body.metadata }),
              ...(body.integrations === undefined ? {} : { integrations: body.integrations }),
              ...(body.seed === undefined ? {} : { seed: body.seed }),
            };
            state.jobs.set(id, row);
            sendJson(response, created, shown(row));
          }),
          route(
            'GET',
            '/fine_tuning/jobs',
            null,
            (_id, _body, response, _request, query) =>
              page(newest(state.jobs.values()).map(shown), query, response, 20),
            { names: ['after', 'limit'] },
          ),
          route('GET', '/fine_tuning/jobs/:id', null, (id, _body, response) =>
            job(id, response, (row) => sendJson(response, 200, shown(row))),
          ),
          act('cancel', 'cancelled'),
          act('pause', 'paused'),
          act('resume', 'queued'),
          listOf(state.events, 'events', 20),
          listOf(state.checkpoints, 'checkpoints', 10),
        ];

  const batches: StrictRoute[] = [
    route('POST', '/batches', options.createBatch, (_id, body, response) => {
      const id = next('batch_');
      const row: Row = {
        id,
        object: 'batch',
        ...body,
        status: 'validating',
        errors: null,
        output_file_id: null,
        error_file_id: null,
        created_at: CREATED + ids,
        request_counts: { total: 0, completed: 0, failed: 0 },
        metadata: body.metadata ?? null,
      };
      state.batches.set(id, row);
      sendJson(response, created, row);
    }),
    route(
      'GET',
      '/batches',
      null,
      (_id, _body, response, _request, query) => {
        const rows = newest(state.batches.values());
        if (options.batchQuery.length === 0) sendJson(response, 200, { object: 'list', data: rows });
        else page(rows, query, response, 20);
      },
      { names: options.batchQuery },
    ),
    route('GET', '/batches/:id', null, (id, _body, response) =>
      found(state.batches, id, response, (row) => sendJson(response, 200, row)),
    ),
    route('POST', '/batches/:id/cancel', null, (id, _body, response) =>
      found(state.batches, id, response, (row) => {
        row.status = 'cancelling';
        sendJson(response, 200, row);
      }),
    ),
  ];
  return [...files, ...(options.uploads ? uploads : []), ...jobs, ...batches];
}

export interface OpenAiObjects extends StrictUpstream {
  readonly state: ObjectState;
  /** `http://127.0.0.1:port/v1` */
  readonly base: string;
}

/** Starts a strict server over these routes; `headers` are those of its way of signing in. */
export async function startObjects(
  routes: ObjectRoutes,
  headers: Readonly<Record<string, RegExp>>,
  optional: readonly string[] = [],
): Promise<OpenAiObjects> {
  const state = objectState();
  const upstream = await startStrictUpstream({
    routes: objectRoutes(routes, state),
    headers,
    optional,
    error: (_status, message) => openAiError(message),
  });
  return Object.defineProperties(upstream, {
    state: { value: state },
    base: { value: upstream.url + routes.prefix },
  }) as OpenAiObjects;
}

/** OpenAI's files, uploads, fine-tuning jobs and batches. */
export function startOpenAiObjects(): Promise<OpenAiObjects> {
  return startObjects(
    {
      prefix: '/v1',
      createJob: CREATE_JOB,
      createBatch: CREATE_BATCH,
      purposes: ['assistants', 'batch', 'fine-tune', 'vision', 'user_data', 'evals'],
      fileQuery: ['purpose', 'limit', 'order', 'after'],
      batchQuery: ['after', 'limit'],
      uploads: true,
    },
    { authorization: /^Bearer test-key$/ },
    ['openai-organization', 'openai-project', 'openai-beta'],
  );
}
