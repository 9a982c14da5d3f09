import { Lru } from '../../kernel/lru.ts';
import type { SandboxModel } from './model.ts';
import { Problem } from './problem.ts';

/** Organisations and model texts whose failures are counted at once; the one unused for longest starts over. */
const COUNTED = 10_000;

const TYPES: Readonly<Record<number, readonly [type: string, code: string | null]>> = {
  400: ['invalid_request_error', null],
  401: ['invalid_request_error', 'invalid_api_key'],
  403: ['invalid_request_error', 'unsupported_country_region_territory'],
  404: ['invalid_request_error', 'model_not_found'],
  408: ['timeout_error', null],
  413: ['invalid_request_error', 'request_too_large'],
  429: ['requests', 'rate_limit_exceeded'],
  529: ['overloaded_error', null],
};

function problem(status: number, message: string, retryAfter: number | null): Problem {
  const [type, code] = TYPES[status] ?? [status < 500 ? 'invalid_request_error' : 'server_error', null];
  return new Problem(status, message, { type, code, retryAfter });
}

/** Remembers how often `error?times=N` has failed. */
export class Faults {
  readonly #failed = new Lru<string, number>({ maxEntries: COUNTED });

  /** The error this call is to be answered with, if any. `now` in milliseconds since the epoch. */
  due(model: SandboxModel, organisationId: string, now: number): Problem | null {
    const { behaviour, numbers, name } = model;
    if (behaviour === 'flap') {
      const down = numbers.down_ms ?? 0;
      const up = numbers.up_ms ?? down;
      const phase = now % (up + down);
      if (phase < up) return null;
      const left = Math.ceil((up + down - phase) / 1000);
      return problem(numbers.status ?? 503, `The sandbox model flap is down for another ${left} s.`, left);
    }
    if (behaviour !== 'error') return null;
    const status = numbers.status ?? 500;
    if (numbers.times !== undefined) {
      const key = `${organisationId}\0${name}`;
      const failed = this.#failed.get(key) ?? 0;
      if (failed >= numbers.times) return null;
      this.#failed.set(key, failed + 1);
    }
    return problem(status, `The sandbox model error answers ${status} as asked.`, numbers.retry_after ?? null);
  }
}
