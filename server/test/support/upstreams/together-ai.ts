import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../upstream.ts';

const integer = z.number().int();
const text = z.string().min(1);

/** Body of `POST /fine-tunes` by the published definition. */
const FINE_TUNE = z.strictObject({
  model: text,
  training_file: text,
  validation_file: text.optional(),
  n_evals: integer.min(0).optional(),
  n_epochs: integer.min(1).optional(),
  batch_size: z.union([integer.min(1), z.literal('max')]).optional(),
  learning_rate: z.number().positive().optional(),
  suffix: z.string().max(64).optional(),
  random_seed: integer.optional(),
  training_method: z
    .union([
      z.strictObject({ method: z.literal('sft'), train_on_inputs: z.union([z.boolean(), z.literal('auto')]) }),
      z.strictObject({ method: z.literal('dpo'), dpo_beta: z.number().optional() }),
    ])
    .optional(),
});

const PURPOSE = z.enum([
  'fine-tune',
  'eval',
  'eval-sample',
  'eval-output',
  'eval-summary',
  'batch-generated',
  'batch-api',
]);
const KIND = z.enum(['jsonl', 'csv', 'parquet']);
const FILE = { purpose: PURPOSE, file_name: text, file_type: KIND };

const BATCH = z.strictObject({
  input_file_id: text,
  endpoint: z.string().startsWith('/v1/'),
  completion_window: z.string().optional(),
  model_id: text.optional(),
  priority: integer.optional(),
});

type Row = Record<string, unknown>;

export interface TogetherUpstream extends StrictUpstream {
  /** Rows as the provider would answer them, by id, in no order. */
  readonly jobs: Map<string, Row>;
  readonly events: Map<string, Row[]>;
  readonly checkpoints: Map<string, Row[]>;
  readonly files: Map<string, Row>;
  readonly contents: Map<string, Buffer>;
  readonly batches: Map<string, Row>;
  /** The object store behind signed addresses: refuses every header that could carry a key. */
  readonly store: FakeUpstream;
  /** False: the server does not know the upload by redirect. Default true. */
  redirects: boolean;
  /** Answer of the store to a PUT. Default 200. */
  storeStatus: number;
}

const error = (status: number, message: string): Row => ({
  error: { message, type: status === 404 ? 'not_found_error' : 'invalid_request_error', param: null, code: null },
});

const missing = (response: ServerResponse): void => sendJson(response, 404, error(404, 'Not found'));

/** Together's files, fine-tunes and batches, April 2026, with an object store beside it. */
export async function startTogether(key = 'test-key'): Promise<TogetherUpstream> {
  const state = {
    jobs: new Map<string, Row>(),
    events: new Map<string, Row[]>(),
    checkpoints: new Map<string, Row[]>(),
    files: new Map<string, Row>(),
    contents: new Map<string, Buffer>(),
    batches: new Map<string, Row>(),
    redirects: true,
    storeStatus: 200,
  };
  let serial = 0;
  const idIn = (request: Received, at = 2): string => decodeURIComponent(request.path.split(/[/?]/)[at] ?? '');
  const found = (
    map: Map<string, Row>,
    request: Received,
    response: ServerResponse,
    then: (row: Row) => void,
  ): void => {
    const row = map.get(idIn(request));
    if (row === undefined) missing(response);
    else then(row);
  };
  const addFile = (purpose: unknown, filename: unknown, kind: unknown, bytes: number): Row => {
    const id = `file-${++serial}`;
    const row = {
      id,
      object: 'file',
      created_at: 1_767_225_600 + serial,
      filename,
      bytes,
      purpose,
      Processed: false,
      FileType: kind,
      LineCount: 0,
    };
    state.files.set(id, row);
    return row;
  };
  const store = await startUpstream((request, response) => {
    const id = request.path.split(/[/?]/)[2] ?? '';
    const names = Object.keys(request.headers);
    const keyed = names.some((name) => /authorization|api-key|cookie/.test(name));
    if (keyed || !request.path.includes('?signature=good')) {
      faults.push(`store: ${request.method} ${request.path} ${names.join(' ')}`);
      response.writeHead(403).end();
      return;
    }
    if (request.method === 'GET') {
      const content = state.contents.get(id) ?? Buffer.alloc(0);
      response
        .writeHead(200, { 'content-type': 'application/x-ndjson', 'content-length': content.length })
        .end(content);
      return;
    }
    if (request.method !== 'PUT' || Number(request.headers['content-length']) !== request.body.length) {
      faults.push(`store: ${request.method} without its length`);
      response.writeHead(411).end();
      return;
    }
    if (state.storeStatus !== 200) {
      response.writeHead(state.storeStatus, { 'content-type': 'application/xml' });
      response.end('<Error><Code>SlowDown</Code><Message>Please slow down.</Message></Error>');
      return;
    }
    state.contents.set(id, request.body);
    Object.assign(state.files.get(id) ?? {}, { Processed: true, bytes: request.body.length });
    response.writeHead(200).end();
  });
  const routes: StrictRoute[] = [
    {
      method: 'POST',
      path: /^\/fine-tunes$/,
      body: FINE_TUNE,
      answer(body, response) {
        const id = `ft-${++serial}`;
        const { training_method: method, ...rest } = body;
        const row = {
          id,
          object: 'fine-tune',
          ...rest,
          status: 'pending',
          created_at: `2026-01-01T00:00:${String(serial % 60).padStart(2, '0')}.250Z`,
          updated_at: '2026-01-01T00:10:00Z',
          model_output_name: `user/${String(body.model)}-${String(body.suffix)}`,
          training_method: method,
          user_id: 'user-1',
          events: [],
        };
        state.jobs.set(id, row);
        sendJson(response, 200, row);
      },
    },
    {
      method: 'GET',
      path: /^\/fine-tunes$/,
      body: null,
      answer: (_, response) => sendJson(response, 200, { data: [...state.jobs.values()] }),
    },
    {
      method: 'GET',
      path: /^\/fine-tunes\/[^/]+$/,
      body: null,
      answer: (_, response, request) => found(state.jobs, request, response, (row) => sendJson(response, 200, row)),
    },
    {
      method: 'POST',
      path: /^\/fine-tunes\/[^/]+\/cancel$/,
      body: null,
      answer: (_, response, request) =>
        found(state.jobs, request, response, (row) => {
          if (['completed', 'error', 'cancelled'].includes(String(row.status))) {
            sendJson(response, 400, error(400, 'The job has ended.'));
            return;
          }
          row.status = 'cancel_requested';
          sendJson(response, 200, row);
        }),
    },
    {
      method: 'GET',
      path: /^\/fine-tunes\/[^/]+\/(events|checkpoints)$/,
      body: null,
      answer: (_, response, request) =>
        found(state.jobs, request, response, (row) => {
          const of = request.path.endsWith('/events') ? state.events : state.checkpoints;
          sendJson(response, 200, { data: of.get(String(row.id)) ?? [] });
        }),
    },
    {
      method: 'POST',
      path: /^\/files$/,
      query: ['file_name', 'file_type', 'purpose'],
      body: z.strictObject(FILE),
      form: 'urlencoded',
      answer(body, response) {
        if (!state.redirects) {
          missing(response);
          return;
        }
        const row = addFile(body.purpose, body.file_name, body.file_type, 0);
        response.writeHead(302, {
          location: `${store.url}/bucket/${String(row.id)}?signature=good`,
          'x-together-file-id': String(row.id),
        });
        response.end();
      },
    },
    {
      method: 'POST',
      path: /^\/files\/upload$/,
      body: z.strictObject({ ...FILE, file: z.strictObject({ bytes: integer }) }),
      form: true,
      chunked: true,
      answer(body, response) {
        const { bytes } = body.file as { bytes: number };
        const row = addFile(body.purpose, body.file_name, body.file_type, bytes);
        sendJson(response, 200, { ...row, Processed: true });
      },
    },
    {
      method: 'GET',
      path: /^\/files$/,
      body: null,
      answer: (_, response) => sendJson(response, 200, { data: [...state.files.values()] }),
    },
    {
      method: 'GET',
      path: /^\/files\/[^/]+$/,
      body: null,
      answer: (_, response, request) => found(state.files, request, response, (row) => sendJson(response, 200, row)),
    },
    {
      method: 'DELETE',
      path: /^\/files\/[^/]+$/,
      body: null,
      answer: (_, response, request) =>
        found(state.files, request, response, (row) => {
          state.files.delete(String(row.id));
          sendJson(response, 200, { id: row.id, deleted: true });
        }),
    },
    {
      method: 'GET',
      path: /^\/files\/[^/]+\/content$/,
      body: null,
      answer: (_, response, request) =>
        found(state.files, request, response, (row) => {
          const content = state.contents.get(String(row.id));
          if (state.redirects) {
            response.writeHead(302, { location: `${store.url}/bucket/${String(row.id)}?signature=good` }).end();
          } else {
            response.writeHead(200, { 'content-type': 'application/octet-stream' }).end(content);
          }
        }),
    },
    {
      method: 'POST',
      path: /^\/batches$/,
      body: BATCH,
      answer(body, response) {
        const id = `batch-${++serial}`;
        const row = {
          id,
          user_id: 'user-1',
          input_file_id: body.input_file_id,
          endpoint: body.endpoint,
          model_id: body.model_id,
          status: 'VALIDATING',
          progress: 0,
          created_at: `2026-01-01T00:00:${String(serial % 60).padStart(2, '0')}Z`,
          job_deadline: '2026-01-02T00:00:00Z',
          output_file_id: '',
        };
        state.batches.set(id, row);
        sendJson(response, 201, { job: row });
      },
    },
    {
      method: 'GET',
      path: /^\/batches$/,
      body: null,
      answer: (_, response) => sendJson(response, 200, [...state.batches.values()]),
    },
    {
      method: 'GET',
      path: /^\/batches\/[^/]+$/,
      body: null,
      answer(_, response, request) {
        const row = state.batches.get(idIn(request));
        if (row === undefined) sendJson(response, 404, { error: 'batch job not found' });
        else sendJson(response, 200, row);
      },
    },
    {
      method: 'POST',
      path: /^\/batches\/[^/]+\/cancel$/,
      body: null,
      answer: (_, response, request) =>
        found(state.batches, request, response, (row) => {
          if (row.status !== 'COMPLETED') row.status = 'CANCELLED';
          sendJson(response, 200, row);
        }),
    },
  ];
  const upstream = await startStrictUpstream({
    routes,
    headers: { authorization: new RegExp(`^Bearer ${key}$`) },
    optional: [],
    error,
  });
  const { faults, stop } = upstream;
  Object.defineProperties(upstream, {
    store: { value: store },
    stop: {
      value: async () => {
        await store.stop();
        await stop();
      },
    },
    ...Object.fromEntries(
      Object.keys(state).map((name) => [
        name,
        {
          get: () => state[name as keyof typeof state],
          set: (value: never) => {
            state[name as keyof typeof state] = value;
          },
        },
      ]),
    ),
  });
  return upstream as TogetherUpstream;
}
