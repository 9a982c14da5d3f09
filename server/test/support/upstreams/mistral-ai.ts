import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';

const text = z.string().min(1);
const ENDPOINTS = [
  '/v1/chat/completions',
  '/v1/embeddings',
  '/v1/fim/completions',
  '/v1/moderations',
  '/v1/chat/moderations',
  '/v1/ocr',
  '/v1/classifications',
] as const;

/** Body of `POST /fine_tuning/jobs` by the last published definition. */
const JOB = z.strictObject({
  model: text,
  training_files: z.array(z.strictObject({ file_id: text, weight: z.number().positive() })).min(1),
  validation_files: z.array(text).optional(),
  hyperparameters: z.strictObject({
    epochs: z.number().min(0.01).optional(),
    training_steps: z.number().int().min(1).optional(),
    learning_rate: z.number().min(1e-8).max(1).optional(),
  }),
  suffix: z.string().max(18).optional(),
  job_type: z.enum(['completion', 'classifier']),
  auto_start: z.boolean(),
  invalid_sample_skip_percentage: z.number().min(0).max(0.5),
});

const BATCH = z.strictObject({
  input_files: z.array(text).min(1),
  endpoint: z.enum(ENDPOINTS),
  model: text,
  metadata: z.record(z.string(), z.string()).optional(),
  timeout_hours: z.number().int().min(1).max(168),
});

type Row = Record<string, unknown>;

export interface MistralUpstream extends StrictUpstream {
  /** Rows as the provider would answer them, by id; lists are newest first. */
  readonly jobs: Map<string, Row>;
  readonly files: Map<string, Row>;
  readonly contents: Map<string, Buffer>;
  readonly batches: Map<string, Row>;
  /** True: the deprecated job routes are no longer served. */
  gone: boolean;
}

const error = (status: number, message: string): Row =>
  status === 404
    ? { detail: message }
    : { object: 'error', message, type: 'invalid_request_error', param: null, code: null };

/** Mistral's files, fine-tuning jobs and batches. */
export async function startMistral(key = 'test-key'): Promise<MistralUpstream> {
  const state = {
    jobs: new Map<string, Row>(),
    files: new Map<string, Row>(),
    contents: new Map<string, Buffer>(),
    batches: new Map<string, Row>(),
    gone: false,
  };
  let serial = 0;
  const params = (request: Received): URLSearchParams => new URL(request.path, 'http://upstream').searchParams;
  const idIn = (request: Received, at: number): string => decodeURIComponent(request.path.split(/[/?]/)[at] ?? '');
  const found = (map: Map<string, Row>, id: string, response: ServerResponse, then: (row: Row) => void): void => {
    const row = map.get(id);
    if (row === undefined) sendJson(response, 404, error(404, `There is nothing with id ${id}`));
    else then(row);
  };
  const paged = (rows: Row[], request: Received, response: ServerResponse): void => {
    const query = params(request);
    const size = Number(query.get('page_size') ?? 100);
    const from = Number(query.get('page') ?? 0) * size;
    const sorted = rows.toSorted((a, b) => Number(b.created_at) - Number(a.created_at));
    sendJson(response, 200, { object: 'list', data: sorted.slice(from, from + size), total: rows.length });
  };
  /** Rows of a list carry neither events nor checkpoints. */
  const brief = ({ events: _, checkpoints: __, ...row }: Row): Row => row;
  const job =
    (then: StrictRoute['answer']): StrictRoute['answer'] =>
    (body, response, request) => {
      if (state.gone) sendJson(response, 404, { detail: 'Not Found' });
      else then(body, response, request);
    };
  const routes: StrictRoute[] = [
    {
      method: 'POST',
      path: /^\/fine_tuning\/jobs$/,
      body: JOB,
      answer: job((body, response) => {
        const id = `job-${++serial}`;
        const files = body.training_files as { file_id: string }[];
        const row = {
          id,
          object: 'job',
          status: 'QUEUED',
          model: body.model,
          auto_start: body.auto_start,
          job_type: body.job_type,
          created_at: 1_767_225_600 + serial,
          modified_at: 1_767_229_200,
          training_files: files.map((file) => file.file_id),
          validation_files: body.validation_files ?? null,
          fine_tuned_model: null,
          suffix: body.suffix ?? null,
          integrations: [],
          trained_tokens: null,
          hyperparameters: { learning_rate: 0.0001, ...(body.hyperparameters as Row) },
          metadata: {},
        };
        state.jobs.set(id, { ...row, events: [], checkpoints: [] });
        sendJson(response, 200, row);
      }),
    },
    {
      method: 'GET',
      path: /^\/fine_tuning\/jobs$/,
      query: ['page', 'page_size', 'created_before'],
      body: null,
      answer: job((_, response, request) => {
        const before = params(request).get('created_before');
        if (before !== null && !/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(before)) {
          sendJson(response, 422, { detail: [{ loc: ['query', 'created_before'], msg: 'not a time', type: 'value' }] });
          return;
        }
        const limit = before === null ? Number.POSITIVE_INFINITY : Date.parse(before) / 1000;
        const rows = [...state.jobs.values()].filter((row) => Number(row.created_at) < limit);
        paged(rows.map(brief), request, response);
      }),
    },
    {
      method: 'GET',
      path: /^\/fine_tuning\/jobs\/[^/]+$/,
      body: null,
      answer: job((_, response, request) =>
        found(state.jobs, idIn(request, 3), response, (row) => sendJson(response, 200, row)),
      ),
    },
    {
      method: 'POST',
      path: /^\/fine_tuning\/jobs\/[^/]+\/cancel$/,
      body: null,
      answer: job((_, response, request) =>
        found(state.jobs, idIn(request, 3), response, (row) => {
          if (row.status !== 'SUCCESS') row.status = 'CANCELLATION_REQUESTED';
          sendJson(response, 200, row);
        }),
      ),
    },
    {
      method: 'POST',
      path: /^\/files$/,
      body: z.strictObject({
        purpose: z.enum(['fine-tune', 'batch', 'ocr']),
        file: z.strictObject({ bytes: z.number() }),
        expiry: z.string().optional(),
        visibility: z.string().optional(),
      }),
      form: true,
      chunked: true,
      answer(body, response, request) {
        const id = `00000000-0000-4000-8000-${String(++serial).padStart(12, '0')}`;
        const row = {
          id,
          object: 'file',
          bytes: (body.file as { bytes: number }).bytes,
          created_at: 1_767_225_600 + serial,
          filename: /filename="([^"]*)"/.exec(request.body.toString('latin1'))?.[1],
          purpose: body.purpose,
          sample_type: body.purpose === 'batch' ? 'batch_request' : 'instruct',
          source: 'upload',
        };
        state.files.set(id, row);
        sendJson(response, 200, row);
      },
    },
    {
      method: 'GET',
      path: /^\/files$/,
      query: ['page', 'page_size', 'purpose'],
      body: null,
      answer(_, response, request) {
        const purpose = params(request).get('purpose');
        const rows = [...state.files.values()].filter((row) => purpose === null || row.purpose === purpose);
        paged(rows, request, response);
      },
    },
    {
      method: 'GET',
      path: /^\/files\/[^/]+$/,
      body: null,
      answer: (_, response, request) =>
        found(state.files, idIn(request, 2), response, (row) => sendJson(response, 200, row)),
    },
    {
      method: 'DELETE',
      path: /^\/files\/[^/]+$/,
      body: null,
      answer: (_, response, request) =>
        found(state.files, idIn(request, 2), response, (row) => {
          state.files.delete(String(row.id));
          sendJson(response, 200, { id: row.id, object: 'file', deleted: true });
        }),
    },
    {
      method: 'GET',
      path: /^\/files\/[^/]+\/content$/,
      body: null,
      answer: (_, response, request) =>
        found(state.files, idIn(request, 2), response, (row) => {
          response.writeHead(200, { 'content-type': 'application/octet-stream' });
          response.end(state.contents.get(String(row.id)));
        }),
    },
    {
      method: 'POST',
      path: /^\/batch\/jobs$/,
      body: BATCH,
      answer(body, response) {
        const id = `batch-${++serial}`;
        const row = {
          id,
          object: 'batch',
          input_files: body.input_files,
          endpoint: body.endpoint,
          model: body.model,
          metadata: body.metadata ?? null,
          errors: [],
          status: 'QUEUED',
          created_at: 1_767_225_600 + serial,
          total_requests: 3,
          completed_requests: 0,
          succeeded_requests: 0,
          failed_requests: 0,
          output_file: null,
          error_file: null,
          started_at: null,
          completed_at: null,
        };
        state.batches.set(id, row);
        sendJson(response, 200, row);
      },
    },
    {
      method: 'GET',
      path: /^\/batch\/jobs$/,
      query: ['page', 'page_size'],
      body: null,
      answer: (_, response, request) => paged([...state.batches.values()], request, response),
    },
    {
      method: 'GET',
      path: /^\/batch\/jobs\/[^/]+$/,
      body: null,
      answer: (_, response, request) =>
        found(state.batches, idIn(request, 3), response, (row) => sendJson(response, 200, row)),
    },
    {
      method: 'POST',
      path: /^\/batch\/jobs\/[^/]+\/cancel$/,
      body: null,
      answer: (_, response, request) =>
        found(state.batches, idIn(request, 3), response, (row) => {
          if (row.status !== 'SUCCESS') row.status = 'CANCELLATION_REQUESTED';
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
  return withState(upstream, state) as MistralUpstream;
}

/** `state`, readable and writable as properties of `upstream`. */
function withState(upstream: StrictUpstream, state: Record<string, unknown>): StrictUpstream {
  for (const name of Object.keys(state)) {
    Object.defineProperty(upstream, name, {
      get: () => state[name],
      set: (value: unknown) => {
        state[name] = value;
      },
    });
  }
  return upstream;
}
