/** What a request may use at most, or will most likely use, before it is sent. */
import { JsonScanError, scanJson } from '../kernel/json-scan.ts';
import { NO_TOKENS } from '../operations/usage.ts';
import { costMicros } from '../pricing/cost.ts';
import type { Exchange } from './exchange.ts';

export interface Estimate {
  /** Micro-dollars; 0 where no price is known. */
  readonly cost: number;
  readonly tokens: number;
  /** Whether it cannot become more. */
  readonly bounded: boolean;
}

const MAXIMA = ['max_completion_tokens', 'max_output_tokens', 'max_tokens'];
const WANTED = [...MAXIMA, 'n'];
/** Larger bodies are not looked through a second time. */
const MAX_SCAN = 256 * 1024;
/** No answer is longer; larger maxima are callers' ways of saying none. */
const MAX_OUTPUT = 1_000_000;
const NOTHING: Estimate = { cost: 0, tokens: 0, bounded: true };

export function modelKey(x: Exchange): string {
  return `${x.target?.provider.id ?? ''} ${x.model}`;
}

export function estimateUse(x: Exchange): Estimate {
  const { target, operation } = x;
  // Files, batches and jobs are free to ask for: their requests count when they run.
  if (target === null || operation.family === 'J' || operation.family === 'F') return NOTHING;
  const input = x.services.pricer.estimateTokens(x.body);
  const answers = operation.family === 'C' || operation.id === 'completions' || operation.family === 'P';
  const most = answers ? maximum(x) : 0;
  const output = most ?? x.services.outputs.expected(modelKey(x));
  const price = x.services.pricer.price(target.provider.id, null, x.model, target.stored, x.time);
  const bounded = most !== null && operation.family !== 'B' && price !== null;
  const cost = price === null ? 0 : costMicros(price, { ...NO_TOKENS, input, output }).micros;
  return { cost, tokens: input + output, bounded };
}

/** Most output tokens the body allows; null when it does not say. */
function maximum(x: Exchange): number | null {
  const { body } = x;
  if (x.scan === null || body.length > MAX_SCAN) return null;
  let found: number | null = null;
  let choices = 1;
  try {
    const scan = scanJson(body, WANTED);
    for (const name of WANTED) {
      const range = scan.get(name);
      if (range?.kind !== 'number') continue;
      const value = Number(body.toString('latin1', range.start, range.end));
      if (!(value >= 1 && value <= MAX_OUTPUT)) continue;
      if (name === 'n') choices = value;
      else found = Math.max(found ?? 0, value);
    }
  } catch (error) {
    if (error instanceof JsonScanError) return null;
    throw error;
  }
  return found === null ? null : Math.min(MAX_OUTPUT, Math.ceil(found * choices));
}
