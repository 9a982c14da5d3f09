import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { asArray, asObject, refuse } from '../operations/convert/fields.ts';
import { tokenCount } from '../operations/usage.ts';
import { plainBinding, requestOf } from './openai-compatible.ts';
import type { Binding, FanOut } from './provider.ts';
import type { AnswerQuirk, RequestQuirk } from './quirks.ts';

/** Little-endian float32, which is what `encoding_format: base64` means. */
export function encodeFloats(values: readonly JsonValue[]): string {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeFloatLE(typeof value === 'number' ? value : Number.NaN, i * 4);
  });
  return bytes.toString('base64');
}

/** Rows in the order of the input, whatever order the upstream answered in. */
function inInputOrder(data: readonly JsonValue[]): JsonValue[] {
  const at = (row: JsonValue): number => (isObject(row) && typeof row.index === 'number' ? row.index : 0);
  return [...data].sort((a, b) => at(a) - at(b));
}

/** Whether a caller asked for base64, as the OpenAI client libraries do by default. */
const wantsBase64 = (body: JsonObject | undefined): boolean => body?.encoding_format === 'base64';

export interface EmbeddingQuirks {
  readonly request?: readonly RequestQuirk[];
  /** The provider answers with floats whatever was asked: `encoding_format` stays here and is done by us. */
  readonly floatsOnly?: boolean;
  readonly answer?: readonly AnswerQuirk[];
  /** Most texts of one call: longer lists are embedded in several. */
  readonly most?: number;
}

/** For providers that embed texts only, no lists of tokens. */
export const textsOnly: RequestQuirk = {
  touches: ['"input"'],
  apply(body) {
    const at = asArray(body.input).findIndex((one) => typeof one === 'number' || Array.isArray(one));
    return at < 0 ? body : refuse(`input[${at}]`, 'only texts can be embedded there, no tokens.');
  },
};

/** The bodies of several calls for a list that is too long for one; null where one call is enough. */
export function inCalls(body: JsonObject, most: number): JsonObject[] | null {
  const { input } = body;
  if (!Array.isArray(input) || input.length <= most || input.some((one) => typeof one === 'number')) return null;
  const bodies: JsonObject[] = [];
  for (let at = 0; at < input.length; at += most) bodies.push({ ...body, input: input.slice(at, at + most) });
  return bodies;
}

function fanOutBy(most: number): FanOut {
  return {
    split: (body) => inCalls(body, most),
    join(answers) {
      const total = (name: string): number =>
        answers.reduce((sum, answer) => sum + (tokenCount(asObject(answer.usage)[name]) ?? 0), 0);
      const data = answers.flatMap((answer) => inInputOrder(asArray(answer.data)));
      const names = Object.keys(asObject(answers[0]?.usage));
      return {
        ...answers[0],
        data: data.map((row, index) => (isObject(row) ? { ...row, index } : row)),
        usage: Object.fromEntries(names.map((name) => [name, total(name)])),
      };
    },
  };
}

/** Some count only the total, which callers expect beside the tokens of the prompt. */
function withPromptTokens(body: JsonObject): JsonObject {
  const { usage } = body;
  if (!isObject(usage) || usage.prompt_tokens !== undefined || tokenCount(usage.total_tokens) === null) return body;
  return { ...body, usage: { prompt_tokens: usage.total_tokens ?? 0, ...usage } };
}

const FLOATS: RequestQuirk = {
  touches: ['"encoding_format"'],
  apply(body) {
    if (!Object.hasOwn(body, 'encoding_format')) return body;
    const { encoding_format: _format, ...rest } = body;
    return rest;
  },
};

/** Embeddings of a provider that differs from the published definition. */
export function embeddingsBinding(quirks: EmbeddingQuirks): Binding {
  const request = [...(quirks.request ?? []), ...(quirks.floatsOnly ? [FLOATS] : [])];
  const answer = quirks.answer ?? [];
  const { most } = quirks;
  const sent = requestOf(request);
  return {
    ...plainBinding('embeddings'),
    // Whether a list is too long shows in the list alone: every body is read.
    ...(most === undefined ? sent : { request: sent.request ?? ((body: JsonObject) => body), fanOut: fanOutBy(most) }),
    response(body, context) {
      const out = withPromptTokens(answer.reduce((current, quirk) => quirk.apply(current), body));
      if (!Array.isArray(out.data)) return out;
      const data = inInputOrder(out.data);
      if (!quirks.floatsOnly || !wantsBase64(context.body)) return { ...out, data };
      return {
        ...out,
        data: data.map((row) =>
          isObject(row) && Array.isArray(row.embedding) ? { ...row, embedding: encodeFloats(row.embedding) } : row,
        ),
      };
    },
  };
}
