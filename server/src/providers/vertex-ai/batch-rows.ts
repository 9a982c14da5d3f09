/** Rows of Vertex AI batches, in and out. */

import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { asArray, asObject, invalid, refuse } from '../../operations/convert/fields.ts';
import { errorCode } from '../../operations/dialects/errors.ts';
import type { Batch, BatchRequest } from '../../operations/training.ts';
import { failedResponse, type ResultLine, readInputLine } from '../batch-lines.ts';
import { geminiToChat } from '../google/gemini-answer.ts';
import { chatToGemini } from '../google/gemini-request.ts';
import { integerOf, namedIn, textOf } from '../training-calls.ts';
import { rpcStatus } from './place.ts';

interface Endpoint {
  /** Value of the label that keeps the endpoint. */
  readonly label: string;
  /** The row without its id; upstream carries further columns into the result. */
  input(body: JsonObject): JsonObject;
  output(row: JsonObject, batch: Batch, customId: string): JsonObject;
}

/** An embeddings body of one text as a row; a row cannot hold more. */
function embeddingRow(body: JsonObject): JsonObject {
  const { input, model: _, user: __, encoding_format: format, ...rest } = body;
  if (format !== undefined && format !== 'float') {
    refuse('body.encoding_format', 'rows of a batch are answered with numbers.');
  }
  for (const name of Object.keys(rest)) if (rest[name] !== null) refuse(`body.${name}`, 'a row has no place for it.');
  const [content, ...more] = typeof input === 'string' ? [input] : asArray(input);
  if (typeof content !== 'string') invalid('body.input', 'input must be a text.');
  if (more.length > 0) refuse('body.input', 'a row holds one text; write one line for each.');
  return { content };
}

function embeddingAnswer(row: JsonObject, batch: Batch): JsonObject {
  let tokens = 0;
  const data = asArray(row.predictions).map((prediction, index) => {
    const { values, statistics } = asObject(asObject(prediction).embeddings);
    tokens += integerOf(asObject(statistics).token_count) ?? 0;
    return { object: 'embedding', index, embedding: asArray(values) };
  });
  return {
    object: 'list',
    data,
    model: textOf(batch.model) ?? '',
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
}

export const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  '/v1/chat/completions': {
    label: 'chat-completions',
    input: (body) => ({ request: chatToGemini(body, textOf(body.model) ?? '', { vertex: true, batch: true }) }),
    output: (row, batch, customId) =>
      geminiToChat(asObject(row.response), {
        id: `${batch.id}-${customId}`,
        model: textOf(batch.model) ?? '',
        created: batch.created_at,
      }),
  },
  '/v1/embeddings': { label: 'embeddings', input: embeddingRow, output: embeddingAnswer },
};

/** The endpoint a label keeps; of a job that was made elsewhere, what its model is for. */
export function endpointNamed(label: JsonValue | undefined, model: string): string {
  for (const [path, endpoint] of Object.entries(ENDPOINTS)) if (endpoint.label === label) return path;
  return model.includes('embedding') ? '/v1/embeddings' : '/v1/chat/completions';
}

/** An OpenAI batch line as a row; throws on what it cannot hold. */
export function inputRow(line: JsonObject, batch: BatchRequest): JsonObject {
  const endpoint = namedIn(ENDPOINTS, batch.endpoint);
  if (endpoint === undefined) refuse('endpoint', 'batches of this provider do not serve it.');
  const { customId, body } = readInputLine(line, batch);
  return { ...endpoint.input(body), custom_id: customId };
}

/** What a failed row says: an error object as text, `{"error": {...}}` or the bare status, or plain words. */
function failureIn(status: string): {
  readonly http: number | null;
  readonly body: JsonValue;
  readonly message: string;
} {
  const brace = status.indexOf('{');
  if (brace >= 0) {
    try {
      const value: unknown = parseJson(status.slice(brace));
      if (isObject(value)) {
        const error = isObject(value.error) ? value.error : value;
        const code = integerOf(error.code);
        const http = code !== null && code >= 400 && code <= 599 ? code : null;
        return { http, body: { error }, message: textOf(error.message) ?? rpcStatus(error).message };
      }
    } catch {
      // Words that hold a brace.
    }
  }
  return { http: null, body: status, message: status };
}

function statusText(status: JsonValue | undefined): string {
  if (typeof status === 'string') return status.trim();
  return isObject(status) && Object.keys(status).length > 0 ? JSON.stringify(status) : '';
}

/** A result row in Sluice's own shape of batch results. `row` counts the rows, for those that carry no id. */
export function outputLine(line: JsonObject, batch: Batch, row: number): ResultLine {
  const customId = textOf(line.custom_id) ?? textOf(asObject(line.instance).custom_id) ?? '';
  const id = `${batch.id}-${customId === '' ? row : customId}`;
  const status = statusText(line.status);
  if (status !== '') {
    const { http, body, message } = failureIn(status);
    if (http !== null) return { id, custom_id: customId, response: failedResponse(http, body, batch.id), error: null };
    return { id, custom_id: customId, response: null, error: { code: 'provider_error', message } };
  }
  const endpoint = namedIn(ENDPOINTS, batch.endpoint);
  if (endpoint === undefined)
    throw new SluiceError('upstream_invalid', 'The batch names an endpoint that no provider serves.');
  try {
    const body = endpoint.output(line, batch, customId);
    return { id, custom_id: customId, response: { status_code: 200, request_id: batch.id, body }, error: null };
  } catch (error) {
    // An answer nobody can read is the failure of its line, not of those after it.
    if (!(error instanceof SluiceError)) throw error;
    return { id, custom_id: customId, response: null, error: { code: errorCode(error), message: error.message } };
  }
}
