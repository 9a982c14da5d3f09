/** What checks of hosted services share: how they are declared, and one way to ask. */

import { z } from 'zod';
import { parseJson } from '../../../kernel/json-exact.ts';
import {
  type Check,
  CheckError,
  type CheckHttpClient,
  type Common,
  type Judgement,
  type Phase,
  type Subject,
} from '../../check.ts';
import { forwarded } from '../../forward-headers.ts';
import { check, LLM, text, url } from '../support.ts';

/** How a saved credential is shown; sent back in an update it stands for what was saved. */
export const isMask = (value: unknown): boolean => typeof value === 'string' && /^\*{7}[0-9a-f]{8}$/.test(value);

/** A field of `credentials`. Masked values are let through: only the resource knows what they stand for. */
export const credential = (shape: z.ZodType<string>): z.ZodType<string> =>
  z
    .string()
    .max(16_384)
    .superRefine((value, context) => {
      if (isMask(value)) return;
      for (const issue of shape.safeParse(value).error?.issues ?? [])
        context.addIssue({ code: 'custom', message: issue.message });
    });

/** A key, as it goes into a header. */
export const secret = credential(
  text(8_192).regex(/^[\x21-\x7e]+$/, 'must be a key: visible ASCII characters without spaces'),
);
/** Where the service is, without the path of its API. */
export const endpoint = credential(url);
export const word = (message: string, pattern = /^[A-Za-z0-9][A-Za-z0-9_.-]{0,199}$/) =>
  z.string().regex(pattern, message);

/** The default, or the given address without its last slash. */
export const base = (given: string | undefined, fallback: string): string => (given ?? fallback).replace(/\/+$/, '');

/**
 * A name that a service gave to what it found: one word with few digits, as such names are. What looks otherwise is not
 * repeated: it could quote the text.
 */
export const label = (name: unknown): string =>
  typeof name === 'string' && /^[A-Za-z][A-Za-z0-9_./-]{0,63}$/.test(name) && name.replace(/\D/g, '').length <= 4
    ? name
    : 'unnamed';

export interface Ask {
  readonly service: string;
  readonly outside: CheckHttpClient;
  /** Posts JSON and gives the answer's. Throws `CheckError` for every status but 2xx, and for what is not JSON. */
  post<T>(
    to: string,
    headers: Readonly<Record<string, string>>,
    body: object | string,
    answer: z.ZodType<T>,
  ): Promise<T>;
}

function faultOf(status: number): string {
  if (status === 401 || status === 403) return `refused the credentials (${status})`;
  if (status === 429) return 'is asked more than its limits allow (429)';
  if (status === 413) return 'finds the text too long (413)';
  return `answered with ${status}`;
}

function asker(service: string, subject: Subject, outside: CheckHttpClient, common: Common): Ask {
  return {
    service,
    outside,
    async post(to, headers, body, shape) {
      const own = { 'content-type': 'application/json', accept: 'application/json', ...headers };
      const { status, body: bytes } = await outside.call({
        url: to,
        method: 'POST',
        headers: { ...forwarded(common.forwardHeaders, subject), ...own },
        body: typeof body === 'string' ? body : JSON.stringify(body),
        // Answers that repeat the texts are longer than the texts.
        maxBytes: 4 * 1024 * 1024,
      });
      if (status < 200 || status > 299) throw new CheckError(`${service} ${faultOf(status)}.`);
      return readAs(service, shape, bytes);
    },
  };
}

/** Messages never quote the answer: it may repeat what was sent. */
function readAs<T>(service: string, shape: z.ZodType<T>, bytes: Buffer): T {
  let said: unknown;
  try {
    said = parseJson(bytes.toString('utf8'));
  } catch {
    throw new CheckError(`${service} did not answer with JSON.`);
  }
  const read = shape.safeParse(said);
  if (read.success) return read.data;
  const path = read.error.issues[0]?.path.map((key) => label(String(key))).join('.') ?? '';
  throw new CheckError(`${service} answered in a form that is not known${path === '' ? '' : ` (${path})`}.`);
}

/** Milliseconds a check of a hosted service has. */
const TIMEOUT_MS = 5_000;

export const redact = z.boolean('must be true or false').default(false);

/** Declares a check of a hosted service. They judge traffic of models only, and whole answers only. */
export function hosted<P, C>(made: {
  readonly id: string;
  /** As people know it. */
  readonly service: string;
  readonly phases: readonly Phase[];
  readonly parameters: z.ZodType<P>;
  readonly credentials?: z.ZodType<C>;
  redacts?(parameters: NoInfer<P>): boolean;
  compile(parameters: P, credentials: C): (subject: Subject, ask: Ask) => Promise<Judgement>;
}): Check {
  const { id, service, phases, parameters, credentials, redacts } = made;
  return check({
    id,
    phases,
    targets: LLM,
    parameters,
    ...(credentials === undefined ? null : { credentials }),
    timeoutMs: TIMEOUT_MS,
    mutates: false,
    ...(redacts === undefined ? null : { redacts }),
    compile(given, common) {
      const judge = made.compile(given, common.credentials as C);
      return {
        lookBehind: null,
        judge: (subject, outside) => judge(subject, asker(service, subject, outside, common)),
      };
    },
  });
}

/** The shape of `credentials`; without them the check could only err, so it is not accepted. */
export const credentials = <S extends z.ZodRawShape>(shape: S) =>
  z.strictObject(shape, {
    error: (issue) =>
      issue.input === undefined
        ? `is required, with your own access to the service: ${Object.keys(shape).join(', ')}`
        : undefined,
  });
