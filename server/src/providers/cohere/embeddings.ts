/** Embeddings over `/v2/embed`. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asArray, asObject, asString, invalid, invalidAnswer, refuse } from '../../operations/convert/fields.ts';
import { refuseUnknown } from '../../operations/convert/request-chat-to-messages.ts';
import { tokenCount } from '../../operations/usage.ts';
import { inCalls, textsOnly } from '../embeddings.ts';
import type { Binding, CallContext, FanOut } from '../provider.ts';

/** Cohere's own fields, which callers may send as they are. */
const OWN = ['images', 'inputs', 'truncate', 'max_tokens', 'priority'] as const;

const KNOWN: ReadonlySet<string> = new Set([
  ...OWN,
  'model',
  'input',
  'input_type',
  'dimensions',
  'output_dimension',
  'encoding_format',
  'embedding_types',
  'user',
]);

/** Most texts of one call. */
const MOST = 96;

/** The one form in which the numbers come. */
function formOf(body: JsonObject): string {
  const types = body.embedding_types ?? null;
  if (types !== null) {
    const [type, ...more] = asArray(types);
    if (typeof type !== 'string' || more.length > 0) {
      return refuse('embedding_types', 'exactly one type can be answered at a time.');
    }
    return type;
  }
  const format = body.encoding_format ?? 'float';
  if (format !== 'float' && format !== 'base64') {
    return refuse('encoding_format', 'only "float" and "base64" are known there.');
  }
  return format;
}

function request(body: JsonObject, context: CallContext): JsonObject {
  refuseUnknown(body, KNOWN);
  const own: JsonObject = {};
  for (const name of OWN) if (body[name] !== undefined && body[name] !== null) own[name] = body[name];
  const input = body.input ?? null;
  const media = own.images !== undefined || own.inputs !== undefined;
  if (media && input !== null) invalid('input', 'Send either "input", "images" or "inputs".');
  const texts = typeof input === 'string' ? [input] : asArray(textsOnly.apply(body, context).input);
  if (!media && texts.length === 0) invalid('input', 'input must be a text or a list of texts.');
  const dimensions = body.dimensions ?? body.output_dimension ?? null;
  return {
    model: context.model,
    // Callers rarely say what a text is for, and a model may need to know.
    input_type: asString(body.input_type) ?? (own.images === undefined ? 'search_document' : 'image'),
    ...(media ? null : { texts }),
    ...own,
    embedding_types: [formOf(body)],
    ...(dimensions === null ? null : { output_dimension: dimensions }),
  };
}

const billed = (answer: JsonObject): JsonObject => asObject(asObject(answer.meta).billed_units);

function response(answer: JsonObject, context: CallContext): JsonObject {
  // Whatever form was asked for, it is the only one.
  const [vectors] = Object.values(asObject(answer.embeddings)).filter(Array.isArray);
  if (vectors === undefined) throw invalidAnswer('The provider answered without embeddings.');
  const tokens = tokenCount(billed(answer).input_tokens) ?? 0;
  return {
    object: 'list',
    data: vectors.map((embedding: JsonValue, index: number) => ({ object: 'embedding', index, embedding })),
    model: context.model,
    usage: { prompt_tokens: tokens, total_tokens: tokens },
    ...(context.strict || !isObject(answer.meta) ? null : { meta: answer.meta }),
  };
}

/** Longer lists than one call takes are embedded in several. */
const fanOut: FanOut = {
  split: (body) => inCalls(body, MOST),
  join(answers) {
    const [first] = answers;
    const forms = Object.keys(asObject(first?.embeddings));
    const embeddings = Object.fromEntries(
      forms.map((form) => [form, answers.flatMap((answer) => asArray(asObject(answer.embeddings)[form]))]),
    );
    const units = answers.map((answer) => tokenCount(billed(answer).input_tokens) ?? 0);
    const total = units.reduce((sum, count) => sum + count, 0);
    return { ...first, embeddings, meta: { ...asObject(first?.meta), billed_units: { input_tokens: total } } };
  },
};

export const embeddings: Binding = {
  shape: 'embeddings',
  path: () => '/v2/embed',
  ownQuery: true,
  request,
  fanOut,
  response,
  usagePath: ['meta', 'billed_units'],
};
