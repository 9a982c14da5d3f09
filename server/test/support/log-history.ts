/** A month of records as a busy organisation makes them: 50 workspaces, 2,000 keys, 60 models, 20,000 end users. The same at each run. */
import type { StoredLog } from '../../src/store/ports.ts';
import { logRecord } from './log-record.ts';

export const HISTORY_DAYS = 30;
const DAY_MS = 86_400_000;

/** 32 bits that look like chance, of a number and of what they are for. */
function mixed(i: number, salt: number): number {
  let bits = Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(salt + 1, 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 16), 0x21f0aaad);
  bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
  return (bits ^ (bits >>> 15)) >>> 0;
}

const hex = (bits: number) => bits.toString(16).padStart(8, '0');

export interface LogHistory {
  /** Milliseconds since the epoch: the begin of its first day (UTC), and the end of its last one. */
  readonly start: number;
  readonly end: number;
  readonly largestWorkspace: string;
  record(i: number): StoredLog;
}

/** @param now the history ends with the day before it */
export function logHistory(records: number, now: number): LogHistory {
  const end = Math.floor(now / DAY_MS) * DAY_MS;
  const start = end - HISTORY_DAYS * DAY_MS;
  const idOf = (time: number, i: number): string => {
    const head = time.toString(16).padStart(12, '0');
    const tail = hex(mixed(i, 1)) + hex(mixed(i, 2)).slice(0, 4);
    return `${head.slice(0, 8)}-${head.slice(8)}-7${hex(mixed(i, 3)).slice(0, 3)}-8${hex(mixed(i, 4)).slice(0, 3)}-${tail}`;
  };
  return {
    start,
    end,
    largestWorkspace: 'ws-0',
    record(i) {
      const time = start + Math.floor((i / records) * HISTORY_DAYS * DAY_MS);
      const failed = mixed(i, 5) % 50 === 0;
      const id = idOf(time, i);
      const model = `model-${mixed(i, 6) % 60}`;
      const input = mixed(i, 7) % 4_000;
      const output = mixed(i, 8) % 700;
      const latency = (mixed(i, 9) % 20_000_000) / 1_000;
      return logRecord(i + 1, {
        id,
        time,
        organisation_id: 'org-a',
        // The larger ones are asked for more often: the first has a sixth of all.
        workspace_id: `ws-${Math.floor((mixed(i, 10) % 50) ** 2 / 50)}`,
        api_key_id: `key-${mixed(i, 11) % 2_000}`,
        user_id: null,
        trace_id: id,
        span_id: id.slice(-16),
        operation: 'chat',
        method: 'POST',
        path: '/v1/chat/completions',
        provider: 'openai',
        provider_slug: 'openai-prod',
        model_requested: model,
        model_sent: model,
        model_answered: model,
        stream: i % 2 === 0,
        status: failed ? 500 : 200,
        outcome: failed ? 'failed' : 'ok',
        usage: { input, output, cache_read: 0, cache_write: 0, reasoning: 0, audio_input: 0, audio_output: 0 },
        usage_estimated: false,
        cost_micros: input * 3 + output * 15,
        latency_ms: latency,
        ttft_ms: latency / 20,
        bytes_in: mixed(i, 12) % 9_000,
        bytes_out: mixed(i, 13) % 3_000,
        metadata: { _user: `user-${mixed(i, 14) % 20_000}`, team: `team-${mixed(i, 15) % 40}` },
        cache_status: mixed(i, 16) % 10 === 0 ? 'HIT' : 'MISS',
        dry_run: false,
      });
    },
  };
}
