import type { ObjectAnswer } from '../runtime/object-call.ts';

/** 200 with a JSON body. */
export function json(value: unknown): ObjectAnswer {
  return { status: 200, headers: ['content-type', 'application/json'], body: Buffer.from(JSON.stringify(value)) };
}
