import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { ANTHROPIC_KEY, anthropicError, messageAnswer, messagesBody } from '../anthropic-upstream.ts';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';

/** Body of `POST /v1/messages/batches`: no file, every line in it. */
const CREATE = z.strictObject({
  requests: z
    .array(
      z.strictObject({
        custom_id: z.string().regex(/^[a-zA-Z0-9_-]{1,64}$/),
        params: messagesBody.refine((params) => params.stream !== true, 'batches are not streamed'),
      }),
    )
    .min(1)
    .refine((list) => new Set(list.map((one) => one.custom_id)).size === list.length, 'custom_id must be unique'),
});

type Row = Record<string, unknown>;

export interface AnthropicBatches extends StrictUpstream {
  /** Rows as the provider would answer them, oldest first. */
  readonly batches: Map<string, Row>;
  readonly results: Map<string, Row[]>;
  /** Runs every line of a batch and ends it. */
  end(id: string): void;
}

/** Anthropic's message batches (version 2023-06-01). */
export async function startAnthropicBatches(): Promise<AnthropicBatches> {
  const batches = new Map<string, Row>();
  const results = new Map<string, Row[]>();
  const asked = new Map<string, z.infer<typeof CREATE>['requests']>();
  const missing = (response: ServerResponse): void => {
    sendJson(response, 404, { type: 'error', error: { type: 'not_found_error', message: 'No such batch.' } });
  };
  const one = (then: (row: Row, response: ServerResponse, request: Received) => void): StrictRoute['answer'] => {
    return (_, response, request) => {
      const row = batches.get(decodeURIComponent(request.path.split(/[/?]/)[4] ?? ''));
      if (row === undefined) missing(response);
      else then(row, response, request);
    };
  };
  const routes: StrictRoute[] = [
    {
      method: 'POST',
      path: /^\/v1\/messages\/batches$/,
      body: CREATE,
      answer(body, response) {
        const id = `msgbatch_${batches.size + 1}`;
        const { requests } = CREATE.parse(body);
        const row = {
          id,
          type: 'message_batch',
          processing_status: 'in_progress',
          request_counts: { processing: requests.length, succeeded: 0, errored: 0, canceled: 0, expired: 0 },
          created_at: '2026-01-01T00:00:00.5Z',
          expires_at: '2026-01-02T00:00:00.5Z',
          ended_at: null,
          archived_at: null,
          cancel_initiated_at: null,
          results_url: null,
        };
        batches.set(id, row);
        asked.set(id, requests);
        sendJson(response, 200, row);
      },
    },
    {
      method: 'GET',
      path: /^\/v1\/messages\/batches$/,
      query: ['limit', 'before_id', 'after_id'],
      body: null,
      answer(_, response, request) {
        const query = new URL(request.path, 'http://upstream').searchParams;
        const all = [...batches.values()].reverse();
        const after = query.get('after_id');
        const at = after === null ? -1 : all.findIndex((row) => row.id === after);
        if (after !== null && at < 0) {
          missing(response);
          return;
        }
        const data = all.slice(at + 1, at + 1 + Number(query.get('limit') ?? 20));
        const has_more = at + 1 + data.length < all.length;
        sendJson(response, 200, {
          data,
          has_more,
          first_id: data[0]?.id ?? null,
          last_id: data.at(-1)?.id ?? null,
        });
      },
    },
    {
      method: 'GET',
      path: /^\/v1\/messages\/batches\/[^/]+$/,
      body: null,
      answer: one((row, response) => sendJson(response, 200, row)),
    },
    {
      method: 'POST',
      path: /^\/v1\/messages\/batches\/[^/]+\/cancel$/,
      body: null,
      answer: one((row, response) => {
        if (row.processing_status !== 'ended') {
          row.processing_status = 'canceling';
          row.cancel_initiated_at = '2026-01-01T00:01:00Z';
        }
        sendJson(response, 200, row);
      }),
    },
    {
      method: 'GET',
      path: /^\/v1\/messages\/batches\/[^/]+\/results$/,
      body: null,
      answer: one((row, response) => {
        response.writeHead(200, { 'content-type': 'application/x-jsonl' });
        response.end((results.get(String(row.id)) ?? []).map((line) => `${JSON.stringify(line)}\n`).join(''));
      }),
    },
  ];
  const upstream = await startStrictUpstream({
    routes,
    headers: { 'x-api-key': new RegExp(`^${ANTHROPIC_KEY}$`), 'anthropic-version': /^2023-06-01$/ },
    optional: [],
    error: anthropicError,
  });
  return Object.defineProperties(upstream, {
    batches: { value: batches },
    results: { value: results },
    end: {
      value: (id: string) => {
        const requests = asked.get(id) ?? [];
        results.set(
          id,
          requests.map(({ custom_id, params }) => ({
            custom_id,
            result: { type: 'succeeded', message: messageAnswer(params) },
          })),
        );
        Object.assign(batches.get(id) ?? {}, {
          processing_status: 'ended',
          ended_at: '2026-01-01T00:05:00Z',
          request_counts: { processing: 0, succeeded: requests.length, errored: 0, canceled: 0, expired: 0 },
          // Another host: nobody may send the key there.
          results_url: `https://elsewhere.example/v1/messages/batches/${id}/results`,
        });
      },
    },
  }) as AnthropicBatches;
}
