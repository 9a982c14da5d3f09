/** Free text in kept bodies: what of a body is text, and whether a phrase is in it. */
import { isObject, type JsonValue } from '../../kernel/json.ts';
import type { KeptRequest } from './chunk.ts';
import type { BodyPart } from './frame.ts';
import { presentPart } from './presented.ts';

/** Bodies that readers see as those of the request. */
const PARTS: readonly BodyPart[] = ['request', 'answer'];
/** Characters that no writer of JSON writes in another way: bytes without them have no such text. */
const PLAIN = /^[a-z0-9 ,.;:!?_-]+$/;

export interface SearchRules {
  /** Without what tells of the metadata of a request. */
  readonly noMetadata: boolean;
  /** What a reader sees in place of a body. */
  readonly shown: (body: JsonValue) => JsonValue;
}

/** Whether a phrase is in a text of a body, however its letters are written. Names of members are no texts. */
export function phraseFinder(phrase: string): (kept: KeptRequest, rules: SearchRules) => boolean {
  const wanted = phrase.toLowerCase();
  const plain = PLAIN.test(wanted);
  const mayHave = (bytes: Buffer) => !plain || bytes.toString('latin1').toLowerCase().includes(wanted);
  return (kept, { noMetadata, shown }) =>
    PARTS.some((part) => {
      const facts = kept.end.parts[part];
      const bytes = kept.bodies[facts?.same ?? part];
      if (facts === undefined || bytes === undefined) return false;
      // The words of a stream are in several of its events.
      const isStream = (facts.headers?.['content-type'] ?? '').startsWith('text/event-stream');
      if (!isStream && !mayHave(bytes)) return false;
      const body = presentPart(kept, part, noMetadata, '')?.body;
      return body !== undefined && textsOf(shown(body)).some((text) => text.toLowerCase().includes(wanted));
    });
}

/** Every text in a value. Of a stream the texts at one place of its events are one. */
export function textsOf(value: JsonValue): string[] {
  const events = isObject(value) && Array.isArray(value.events) ? value.events : null;
  if (events === null) return [...placed(value, '')].map(([, text]) => text);
  const joined = new Map<string, string[]>();
  for (const event of events) {
    for (const [place, text] of placed(event, '')) {
      const before = joined.get(place);
      if (before === undefined) joined.set(place, [text]);
      else before.push(text);
    }
  }
  return [...joined.values()].map((parts) => parts.join(''));
}

function* placed(value: JsonValue, place: string): Generator<readonly [place: string, text: string]> {
  if (typeof value === 'string') yield [place, value];
  else if (Array.isArray(value)) for (const [at, item] of value.entries()) yield* placed(item, `${place}/${at}`);
  else if (isObject(value)) {
    for (const [name, member] of Object.entries(value)) yield* placed(member ?? null, `${place}/${name}`);
  }
}
