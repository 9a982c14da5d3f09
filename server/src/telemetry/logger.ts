import { pino } from 'pino';
import type { Log } from '../kernel/log.ts';

const FIELD_LIMIT = 8192;
/** `JSON.stringify` leaves these as they are, and some log readers take them for line ends. */
const LINE_ENDS = /[\u0085\u2028\u2029]/g;

/** Of errors below an error. */
const CAUSES = 3;

/**
 * An error as text: where it was thrown, and what caused it. As JSON it would be empty. Its other fields are left out but for its code: those
 * of a database repeat what rows hold.
 */
function textOf(error: Error): string {
  const code = 'code' in error && typeof error.code === 'string' ? ` (${error.code})` : '';
  const lines = [`${error.stack ?? String(error)}${code}`];
  let { cause } = error;
  for (let depth = 0; depth < CAUSES && cause instanceof Error; depth++) {
    lines.push(`caused by ${String(cause)}`);
    cause = cause.cause;
  }
  return lines.join('\n');
}

function clean(given: unknown): unknown {
  const value = given instanceof Error ? textOf(given) : given;
  if (typeof value !== 'string') return value;
  const short = value.length > FIELD_LIMIT ? `${value.slice(0, FIELD_LIMIT)}… (${value.length} characters)` : value;
  return short.replace(LINE_ENDS, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function cleanAll(fields: Record<string, unknown> | undefined): Record<string, unknown> {
  if (fields === undefined) return {};
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, clean(value)]));
}

/** The operational log: one JSON object a line, or a short readable line on a terminal. */
export function createLogger(options: {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly format: 'pretty' | 'json';
  readonly write: (line: string) => void;
}): Log {
  const { level, format, write } = options;
  const logger = pino(
    { level, base: null },
    { write: format === 'json' ? write : (line: string) => write(pretty(line)) },
  );
  const at = (name: 'debug' | 'info' | 'warn' | 'error') => (message: string, fields?: Record<string, unknown>) =>
    logger[name](cleanAll(fields), String(clean(message)));
  return { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') };
}

const NAMES: Readonly<Record<number, string>> = { 20: 'debug', 30: 'info', 40: 'warn', 50: 'error' };

/** A line of the log as a person reads it on a terminal. */
export function pretty(line: string): string {
  const { level, time, msg, ...fields } = JSON.parse(line) as { level: number; time: number; msg: string };
  const clock = new Date(time).toISOString().slice(11, 23);
  const rest = Object.entries(fields)
    .map(([name, value]) => ` ${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`)
    .join('');
  return `${clock} ${(NAMES[level] ?? 'info').padEnd(5)} ${msg}${rest}\n`;
}
