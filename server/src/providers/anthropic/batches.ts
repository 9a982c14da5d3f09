/**
 * Message batches. A batch is created by one request that holds all lines, from no file; chat lines are
 * converted as single calls are. Nothing upstream remembers what the caller's file or endpoint was.
 */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, quoted, without } from '../../operations/convert/fields.ts';
import { errorCode, errorStatus } from '../../operations/dialects/errors.ts';
import { anthropicErrorStatus } from '../../operations/dialects/provider-error.ts';
import type { Batch, BatchRequest, BatchStatus } from '../../operations/training.ts';
import {
  callerBody,
  failedResponse,
  mappedLines,
  needsOutput,
  providerBody,
  type ResultLine,
  readInputLine,
} from '../batch-lines.ts';
import type { Provider } from '../provider.ts';
import type { AdapterContext, BatchesAdapter, PreparedCall } from '../training.ts';
import {
  cancelled,
  epochOf,
  filled,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  Refusals,
  sent,
  sentObject,
  textOf,
  unknownAfter,
  urlOf,
} from '../training-calls.ts';

const PATH = '/messages/batches';
/** The one endpoint whose lines have a Messages form. */
const ENDPOINT = '/v1/chat/completions';
const MAX_REQUESTS = 100_000;
const MAX_BYTES = 256 * 1024 * 1024;
/** Head of the answer once a body of this size has been sent. */
const CREATE_MS = 600_000;

const PLAIN_ID = /^[a-zA-Z0-9_-]{1,64}$/;
/** Marks an id that the provider would not take as it was: what follows is base64url of it. */
const CODED = 'b64_';

/** A line's own id inside the provider's alphabet, so that it can be read back from the results. */
export function encodeCustomId(id: string): string {
  if (PLAIN_ID.test(id) && !id.startsWith(CODED)) return id;
  const coded = CODED + Buffer.from(id).toString('base64url');
  if (coded.length <= 64) return coded;
  throw new SluiceError(
    'unsupported_parameter',
    `anthropic cannot express custom_id = ${quoted(id)}; use letters, digits, "_" and "-", at most 64 of them`,
    { param: 'custom_id' },
  );
}

export function decodeCustomId(id: string): string {
  return id.startsWith(CODED) ? Buffer.from(id.slice(CODED.length), 'base64url').toString('utf8') : id;
}

interface Counts {
  readonly processing: number;
  readonly succeeded: number;
  readonly errored: number;
  readonly canceled: number;
  readonly expired: number;
}

function countsOf(value: JsonValue | undefined): Counts {
  const counts = asObject(value);
  const of = (name: string): number => integerOf(counts[name]) ?? 0;
  return {
    processing: of('processing'),
    succeeded: of('succeeded'),
    errored: of('errored'),
    canceled: of('canceled'),
    expired: of('expired'),
  };
}

const totalOf = (counts: Counts): number => Object.values(counts).reduce((sum: number, one: number) => sum + one, 0);

function statusOf(value: JsonValue | undefined, counts: Counts): BatchStatus {
  if (value === 'canceling') return 'cancelling';
  if (value !== 'ended') return 'in_progress';
  if (counts.canceled > 0 && counts.canceled === totalOf(counts)) return 'cancelled';
  return counts.expired > 0 && counts.succeeded === 0 ? 'expired' : 'completed';
}

const ENDED_AT: Partial<Record<BatchStatus, string>> = {
  completed: 'completed_at',
  expired: 'expired_at',
  cancelled: 'cancelled_at',
};

function batchOf(body: JsonObject): Batch {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a batch', body);
  const counts = countsOf(body.request_counts);
  const total = totalOf(counts);
  const status = statusOf(body.processing_status, counts);
  const created = epochOf(body.created_at) ?? 0;
  const expires = epochOf(body.expires_at);
  const cancelling = epochOf(body.cancel_initiated_at);
  const ended = epochOf(body.ended_at);
  const endedAt = ENDED_AT[status];
  return {
    id,
    object: 'batch',
    endpoint: ENDPOINT,
    input_file_id: '',
    completion_window: '24h',
    status,
    created_at: created,
    in_progress_at: created,
    output_file_id: null,
    error_file_id: null,
    request_counts: {
      total,
      completed: counts.succeeded,
      failed: counts.errored + counts.canceled + counts.expired,
    },
    metadata: null,
    ...(expires === null ? null : { expires_at: expires }),
    ...(cancelling === null ? null : { cancelling_at: cancelling }),
    ...(ended === null || endedAt === undefined ? null : { [endedAt]: ended }),
  };
}

/** The error of a line with the line's number, which is what the caller can look up. */
function atLine(number: number, error: unknown): unknown {
  if (!(error instanceof SluiceError)) return error;
  return error.reworded(`Line ${number} of the batch file: ${error.message}`);
}

const tooLarge = (what: string): SluiceError =>
  new SluiceError('invalid_request', `A batch at anthropic may have at most ${what}; split the file.`, {
    param: 'input_file_id',
  });

/** One line of results as a line of ours. */
function resultOf(provider: Provider, batch: Batch, line: JsonObject, now: () => number): ResultLine {
  const customId = decodeCustomId(textOf(line.custom_id) ?? '');
  const result = asObject(line.result);
  const base = { id: `${batch.id}:${customId}`, custom_id: customId };
  if (result.type === 'succeeded' && isObject(result.message)) {
    try {
      const body = callerBody(provider, ENDPOINT, result.message, now);
      return { ...base, response: { status_code: 200, request_id: null, body }, error: null };
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      return { ...base, response: null, error: { code: errorCode(error), message: error.message } };
    }
  }
  if (result.type === 'errored') {
    // The error comes wrapped as in a separate answer, in older results bare.
    const outer = asObject(result.error);
    const inner = isObject(outer.error) ? outer.error : outer;
    const status = anthropicErrorStatus(textOf(inner.type) ?? 'api_error');
    return { ...base, response: failedResponse(status, { error: inner }, textOf(outer.request_id)), error: null };
  }
  if (result.type === 'expired') {
    return {
      ...base,
      response: null,
      error: { code: 'batch_expired', message: 'The batch expired before this line ran.' },
    };
  }
  if (result.type === 'canceled') {
    const message = 'The batch was cancelled before this line ran.';
    return { ...base, response: null, error: { code: 'batch_cancelled', message } };
  }
  return { ...base, response: null, error: { code: null, message: 'The provider gave a result that is not known.' } };
}

/** `headers`: what every call of the account carries. */
export function batchesOf(provider: () => Provider, headers: (context: AdapterContext) => string[]): BatchesAdapter {
  const prepare = (batch: BatchRequest, context: AdapterContext): PreparedCall => {
    const refusals = new Refusals('anthropic', context);
    if (batch.completion_window !== '24h') refusals.refuse('completion_window', batch.completion_window, 'use "24h"');
    refusals.absent({
      metadata: filled(batch.metadata),
      job_name: batch.job_name,
      role_arn: batch.role_arn,
      output_data_config: batch.output_data_config,
      ...batch.extra,
    });
    if (batch.endpoint !== ENDPOINT) {
      throw new SluiceError(
        'unsupported_parameter',
        `anthropic cannot express endpoint = ${quoted(batch.endpoint)}; use "${ENDPOINT}"`,
        { param: 'endpoint' },
      );
    }
    const url = urlOf(context.base, PATH);
    // The lines are not known here: each becomes one entry.
    const body = { requests: [] };
    return { method: 'POST', url: url.href, headers: jsonRequest('POST', url, headers(context), body).headers, body };
  };

  /** Entries of the request body, as JSON texts. */
  async function* entries(
    batch: BatchRequest,
    lines: () => AsyncIterable<JsonObject>,
    context: AdapterContext,
  ): AsyncGenerator<string> {
    const dropped = [...context.dropParams];
    let number = 0;
    for await (const line of lines()) {
      number++;
      try {
        const { customId, body } = readInputLine(line, batch);
        const params = providerBody(provider(), ENDPOINT, without(body, dropped));
        yield JSON.stringify({ custom_id: encodeCustomId(customId), params });
      } catch (error) {
        throw atLine(number, error);
      }
    }
  }

  async function retrieve(id: string, context: AdapterContext): Promise<Batch> {
    const url = urlOf(context.base, `${PATH}/${idSegment(id)}`);
    return batchOf(await sentObject(context, jsonRequest('GET', url, headers(context))));
  }

  return {
    prepare,
    async create() {
      throw new SluiceError(
        'invalid_request',
        'Batches at anthropic are made of files kept by the gateway: upload the file with "x-gateway-provider: gateway" and name its id.',
        { param: 'input_file_id' },
      );
    },
    async createFromLines(batch, lines, context) {
      const prepared = prepare(batch, context);
      const head = '{"requests":[';
      const tail = ']}';
      let count = 0;
      let bytes = head.length + tail.length;
      for await (const entry of entries(batch, lines, context)) {
        bytes += Buffer.byteLength(entry) + (count > 0 ? 1 : 0);
        count++;
        if (count > MAX_REQUESTS) throw tooLarge(`${MAX_REQUESTS} lines`);
        if (bytes > MAX_BYTES) throw tooLarge(`${MAX_BYTES} bytes once converted`);
      }
      if (count === 0) {
        throw new SluiceError(
          'invalid_request',
          'The file of input_file_id has no lines: put one request on each line and upload it again.',
          { param: 'input_file_id' },
        );
      }
      async function* body(): AsyncGenerator<Buffer> {
        yield Buffer.from(head);
        let first = true;
        for await (const entry of entries(batch, lines, context)) {
          yield Buffer.from(first ? entry : `,${entry}`);
          first = false;
        }
        yield Buffer.from(tail);
      }
      const answer = await sentObject(context, {
        method: 'POST',
        url: new URL(prepared.url),
        headers: prepared.headers,
        body: Readable.from(body(), { objectMode: false }),
        length: bytes,
        timeoutMs: CREATE_MS,
      });
      return { ...batchOf(answer), input_file_id: batch.input_file_id };
    },
    async list(page, context) {
      const url = urlOf(context.base, PATH, { limit: page.limit, after_id: page.after });
      try {
        const { data, has_more: more } = await sentObject(context, jsonRequest('GET', url, headers(context)));
        return { data: asArray(data).filter(isObject).map(batchOf), has_more: more === true };
      } catch (error) {
        if (page.after !== null && error instanceof SluiceError && errorStatus(error) === 404) throw unknownAfter();
        throw error;
      }
    },
    retrieve,
    async cancel(id, context) {
      const url = urlOf(context.base, `${PATH}/${idSegment(id)}/cancel`);
      return cancelled(batchOf(await sentObject(context, jsonRequest('POST', url, headers(context)))));
    },
    async output(id, context) {
      const batch = await retrieve(id, context);
      needsOutput(batch, [id]);
      // Not the address the answer names: a batch must not decide where the key is sent.
      const url = urlOf(context.base, `${PATH}/${idSegment(id)}/results`);
      const open = async (): Promise<Readable> => {
        return (await sent(context, { method: 'GET', url, headers: headers(context), body: null })).stream;
      };
      return mappedLines([open], (line) => resultOf(provider(), batch, line, context.now));
    },
  };
}
