/** Drives a `LocalHandler` directly, as a relay would. */
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import type { SluiceError } from '../../src/kernel/errors.ts';
import type { WireControl } from '../../src/kernel/wire.ts';
import type { LocalHandler } from '../../src/providers/provider.ts';

export interface LocalAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly bytes: Buffer;
  readonly text: string;
  /** Parsed; undefined when it is not JSON. */
  // biome-ignore lint/suspicious/noExplicitAny: answers are looked into by tests that expect a shape
  readonly json: any;
  readonly error: SluiceError | null;
  readonly ended: boolean;
  readonly chunks: number;
}

export interface LocalCall {
  readonly method?: string;
  readonly path?: string;
  readonly body?: unknown;
  readonly headers?: string[];
  readonly organisationId?: string;
  readonly clock?: Clock;
  readonly onHead?: (control: WireControl) => void;
  readonly onChunk?: (chunk: Buffer, control: WireControl) => void;
  /** Chunks are counted and dropped. */
  readonly drop?: boolean;
}

function bytesOf(body: unknown): Buffer[] | null {
  if (body === undefined) return null;
  if (Buffer.isBuffer(body)) return [body];
  return [Buffer.from(typeof body === 'string' ? body : JSON.stringify(body))];
}

/** Sends one request; resolves when the answer has ended or failed. */
export function call(local: LocalHandler, options: LocalCall): Promise<LocalAnswer> {
  return new Promise((resolve, reject) => {
    let status = 0;
    const headers: Record<string, string> = {};
    const parts: Buffer[] = [];
    let chunks = 0;
    let returned = false;
    let done = false;
    let control: WireControl | null = null;
    const settle = (error: SluiceError | null): void => {
      if (done) reject(new Error('the answer ended twice'));
      done = true;
      const bytes = Buffer.concat(parts);
      const text = bytes.toString('utf8');
      let json: unknown;
      try {
        json = JSON.parse(text);
      } catch {
        json = undefined;
      }
      resolve({ status, headers, bytes, text, json, error, ended: error === null, chunks });
    };
    control = local(
      {
        method: options.method ?? 'POST',
        origin: 'http://in-process',
        path: options.path ?? '/chat/completions',
        headers: options.headers ?? ['content-type', 'application/json'],
        body: bytesOf(options.body),
        organisationId: options.organisationId ?? 'org-1',
        storedCredential: false,
      },
      {
        onHead(code, raw, given) {
          if (!returned) reject(new Error('called back before dispatch returned'));
          if (status !== 0 || control !== given) reject(new Error('a second head, or another control'));
          status = code;
          for (let i = 0; i < raw.length; i += 2) headers[raw[i] ?? ''] = raw[i + 1] ?? '';
          options.onHead?.(given);
        },
        onData(chunk) {
          if (status === 0 || done) reject(new Error('data out of order'));
          chunks += 1;
          if (!options.drop) parts.push(chunk);
          if (control !== null) options.onChunk?.(chunk, control);
        },
        onEnd: () => settle(null),
        onError: (error) => settle(error),
      },
      options.clock ?? systemClock,
    );
    returned = true;
  });
}

export interface SseEvent {
  readonly event: string | null;
  readonly data: string;
  // biome-ignore lint/suspicious/noExplicitAny: events are looked into by tests that expect a shape
  readonly json: any;
}

export function eventsOf(text: string): SseEvent[] {
  return text
    .split('\n\n')
    .filter((block) => block !== '')
    .map((block) => {
      const lines = block.split('\n');
      const data = lines.find((line) => line.startsWith('data: '))?.slice(6) ?? '';
      const event = lines.find((line) => line.startsWith('event: '))?.slice(7) ?? null;
      let json: unknown;
      try {
        json = JSON.parse(data);
      } catch {
        json = undefined;
      }
      return { event, data, json };
    });
}
