import { createHash } from 'node:crypto';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { type Answer, jsonAnswer, wholeAnswer } from './answer.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import { parseModelName } from './model.ts';
import { missing } from './problem.ts';

/** Whole words that flag a category. The point is to be predictable, not to be good. */
const WORDS: Readonly<Record<string, readonly string[]>> = {
  harassment: ['idiot', 'stupid', 'loser'],
  'harassment/threatening': ['threaten', 'threat'],
  hate: ['hate', 'hateful'],
  'hate/threatening': ['genocide'],
  illicit: ['steal', 'drugs', 'counterfeit'],
  'illicit/violent': ['bomb', 'explosives'],
  'self-harm': ['suicide', 'self-harm'],
  'self-harm/intent': ['suicidal'],
  'self-harm/instructions': [],
  sexual: ['porn', 'nude'],
  'sexual/minors': [],
  violence: ['kill', 'murder', 'attack', 'bomb'],
  'violence/graphic': ['gore', 'dismember'],
};

const HIT = 0.98;

/** A small score that is the same for the same text and category. */
function background(text: string, category: string): number {
  const hash = createHash('sha256').update(`${category}\0${text}`).digest().readUInt32LE(0);
  return Number(((hash / 0xffffffff) * 0.001 + 0.00001).toPrecision(6));
}

function judge(text: string, types: readonly string[]): JsonObject {
  const words = new Set(text.toLowerCase().split(/[^\p{L}\p{N}-]+/u));
  const categories: JsonObject = {};
  const scores: JsonObject = {};
  const applied: JsonObject = {};
  let flagged = false;
  for (const [category, list] of Object.entries(WORDS)) {
    const hit = list.some((word) => words.has(word));
    flagged ||= hit;
    categories[category] = hit;
    scores[category] = hit ? HIT : background(text, category);
    applied[category] = hit ? [...types] : [];
  }
  return { flagged, categories, category_scores: scores, category_applied_input_types: applied };
}

function readInput(fields: Fields): { text: string; types: string[] }[] {
  const value = fields.raw('input');
  if (value === undefined) throw missing('input');
  if (typeof value === 'string') return [{ text: value, types: ['text'] }];
  const wanted = 'a string, an array of strings, or an array of text and image parts';
  if (!Array.isArray(value) || value.length === 0 || value.length > 2048) return fields.wrong('input', wanted);
  if (value.every((item: JsonValue) => typeof item === 'string'))
    return value.map((text) => ({ text, types: ['text'] }));
  // Parts of one input have one result.
  const texts: string[] = [];
  const types = new Set<string>();
  for (const [i, item] of value.entries()) {
    if (!isObject(item)) return fields.wrong('input', wanted);
    const part = Fields.of(item, `input[${i}]`);
    const type = part.oneOf('type', ['text', 'image_url']);
    if (type === undefined) throw missing(part.at('type'));
    types.add(type === 'text' ? 'text' : 'image');
    if (type === 'text') texts.push(part.needText('text'));
  }
  return [{ text: texts.join('\n'), types: [...types] }];
}

/** `POST /moderations`. */
export function moderations(input: Input): Answer {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.text('model') ?? 'omni-moderation-latest');
  const body: JsonObject = {
    id: `modr-${input.hash.slice(0, 32)}`,
    model: model.name,
    results: readInput(fields).map(({ text, types }) => judge(text, types)),
    system_fingerprint: 'sandbox',
  };
  return wholeAnswer(model, 0, jsonAnswer(200, body));
}
