import { createHash } from 'node:crypto';
import type { JsonObject } from '../../kernel/json.ts';
import { type Answer, bytesAnswer, type Step, wholeAnswer } from './answer.ts';
import type { Input } from './chat.ts';
import { promptCost, readPrompts } from './completions.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { invalid, missing } from './problem.ts';

const DIMENSIONS = 1536;
const MAX_DIMENSIONS = 4096;
const MAX_INPUTS = 2048;
/** Larger answers are made while they are read. */
const HELD_NUMBERS = 32_768;
/** Words that shape a vector; more change nothing a test could want. */
const MAX_WORDS = 10_000;

/** A 32-bit hash of a word: FNV-1a. */
function wordHash(word: string): number {
  let hash = 0x811c9dc5;
  for (let i = 0; i < word.length; i++) hash = Math.imul(hash ^ word.charCodeAt(i), 0x01000193);
  return hash >>> 0;
}

/** A well-mixed sequence of 32-bit numbers: xorshift. */
function sequence(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return state >>> 0;
  };
}

/**
 * A unit vector that is the same for the same text, near for texts that share words, and different for any two texts:
 * every word adds to eight places, the hash of the whole text a little to all.
 */
export function vectorOf(text: string, dimensions: number): Float32Array {
  const vector = new Float64Array(dimensions);
  const whole = sequence(createHash('sha256').update(text).digest().readUInt32LE(0));
  for (let i = 0; i < dimensions; i++) vector[i] = (whole() / 0xffffffff - 0.5) / Math.sqrt(dimensions);
  const words = text
    .slice(0, MAX_WORDS * 16)
    .toLowerCase()
    .split(/[^\p{L}\p{N}]+/u, MAX_WORDS);
  for (const word of words) {
    if (word === '') continue;
    const next = sequence(wordHash(word));
    for (let k = 0; k < 8; k++) {
      const at = next() % dimensions;
      vector[at] = (vector[at] ?? 0) + (next() & 1 ? 1 : -1);
    }
  }
  let square = 0;
  for (const value of vector) square += value * value;
  const length = Math.sqrt(square) || 1;
  return Float32Array.from(vector, (value) => value / length);
}

function encode(vector: Float32Array, base64: boolean): string {
  if (base64) return JSON.stringify(Buffer.from(vector.buffer).toString('base64'));
  // Nine digits name every 32-bit float exactly.
  return `[${Array.from(vector, (value) => Number(value.toPrecision(9))).join(',')}]`;
}

/** `POST /embeddings`. */
export async function embeddings(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  if (!fields.has('input')) throw missing('input');
  const inputs = readPrompts(fields, 'input');
  if (inputs.length > MAX_INPUTS) {
    throw invalid(
      `Invalid 'input': array too long. Expected an array with maximum length ${MAX_INPUTS}.`,
      'input',
      'array_above_max_length',
    );
  }
  if (inputs.some(({ text }) => text === ''))
    throw invalid("Invalid 'input': it cannot be an empty string.", 'input', 'invalid_value');
  const base64 = fields.oneOf('encoding_format', ['float', 'base64']) === 'base64';
  const dimensions = fields.integer('dimensions', 1, MAX_DIMENSIONS) ?? DIMENSIONS;
  let tokens = 0;
  for (const text of inputs) tokens += await promptCost(text);
  const head: JsonObject = {
    object: 'list',
    model: model.name,
    system_fingerprint: 'sandbox',
    usage: { prompt_tokens: tokens, total_tokens: tokens },
  };
  // Token inputs have no text: their numbers stand for it.
  const texts = inputs.map((one) => (one.tokens === null ? one.text : one.tokens.join(' ')));
  const item = (text: string, index: number): string =>
    `{"object":"embedding","index":${index},"embedding":${encode(vectorOf(text, dimensions), base64)}}`;
  const open = `${JSON.stringify(head).slice(0, -1)},"data":[`;
  if (texts.length * dimensions <= HELD_NUMBERS) {
    const body = Buffer.from(`${open}${texts.map(item).join(',')}]}`);
    return wholeAnswer(model, 0, bytesAnswer(200, 'application/json', body));
  }
  function* steps(): Generator<Step> {
    yield open;
    for (const [index, text] of texts.entries()) yield (index === 0 ? '' : ',') + item(text, index);
    yield ']}';
  }
  return {
    status: 200,
    headers: ['content-type', 'application/json'],
    delayMs: model.numbers.ttft_ms ?? 0,
    steps: steps(),
  };
}
