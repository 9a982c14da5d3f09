/** Joins the stream of an attempt that continues an answer to what its caller has seen of it. */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { parseEvent } from '../../kernel/sse.ts';
import type { Operation } from '../../operations/operation.ts';
import { type StreamJoin, unjoinable } from '../../operations/shapes/resume.ts';
import { formatEvent } from '../../operations/stream.ts';
import { NO_TOKENS, type TokenUsage, totalUsage } from '../../operations/usage.ts';
import type { Prefill } from '../../providers/provider.ts';
import type { DeliveredPrefix } from './delivered-prefix.ts';
import { isSilent } from './response-inspection.ts';

/** The text to go on from: no provider takes white space at its end. */
export function prefixOf({ text }: DeliveredPrefix): string {
  return text.trimEnd();
}

/** What the provider itself wants to know. */
export function withPrefill(body: JsonObject, { message, body: more }: Prefill): JsonObject {
  if (message === undefined) return { ...body, ...more };
  const messages = Array.isArray(body.messages) ? [...body.messages] : [];
  const last = messages.at(-1);
  if (isObject(last)) messages[messages.length - 1] = { ...last, ...message };
  return { ...body, ...more, messages };
}

export class StreamResume {
  readonly #join: StreamJoin;

  constructor({ wire }: Operation, shown: DeliveredPrefix, spent: readonly TokenUsage[]) {
    if (wire.resume === null) throw unjoinable();
    this.#join = wire.resume.join(shown, spent.length === 0 ? NO_TOKENS : totalUsage(spent));
  }

  pass(events: readonly Buffer[]): Buffer[] {
    const out: Buffer[] = [];
    for (const bytes of events) {
      const event = isSilent(bytes) ? null : parseEvent(bytes);
      if (event === null || event.data === '' || event.data.trim() === '[DONE]') {
        out.push(bytes);
        continue;
      }
      let body: unknown;
      try {
        body = parseExact(event.data);
      } catch {
        throw unjoinable();
      }
      if (!isObject(body)) throw unjoinable();
      const joined = this.#join.join(body);
      if (joined !== null) out.push(Buffer.from(formatEvent({ event: event.event, data: JSON.stringify(joined) })));
    }
    return out;
  }
}
