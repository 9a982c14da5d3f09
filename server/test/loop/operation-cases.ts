/** The largest and the heaviest bodies of every operation that takes one, made of the table of operations. */
import { OPERATIONS, type Operation, type OperationId } from '../../src/operations/operation.ts';
import { CALLS } from '../limits/calls.ts';
import { BODY, type LoopCase, MB } from '../support/loop.ts';

/** A case, and the operation whose body it has. The body is made when it is sent: all of them are gigabytes. */
export interface OperationCase extends Omit<LoopCase, 'body'> {
  readonly operation: OperationId;
  readonly body: () => string;
}

type Body = readonly [title: string, make: () => string];

const fill = (unit: string, bytes: number): string => unit.repeat(Math.floor(bytes / unit.length));
const JSON_TYPE = { 'content-type': 'application/json' };
const FORM = { 'content-type': 'multipart/form-data; boundary=B' };

/** A text that a model is asked about, in the fields of `CALLS`. */
const ASKED = /"(?:Hello|A cat)"/;
/** Values as heavy as may be parsed, and far more. */
const VALUES = [0.12 * MB, 0.2 * MB, BODY];

/** The fields with something large in them. */
function jsonBodies(fields: Readonly<Record<string, unknown>>): Body[] {
  const text = JSON.stringify(fields);
  const withMember = (member: string) => `${text.slice(0, -1)}${text === '{}' ? '' : ','}${member}}`;
  return [
    ['a member of 0.12 MB', () => withMember(`"x":"${fill('a', 0.12 * MB)}"`)],
    ['a member of 31 MB', () => withMember(`"x":"${fill('a', BODY)}"`)],
    ...VALUES.map(
      (bytes): Body => [`${bytes / MB} MB of empty lists`, () => withMember(`"x":[${fill('[],', bytes)}[]]`)],
    ),
    ...(ASKED.test(text)
      ? [['a text of 31 MB', () => text.replace(ASKED, () => `"${fill('Lorem ipsum ', BODY)}"`)] as const]
      : []),
  ];
}

const part = (name: string, value: string, more = ''): string =>
  `--B\r\ncontent-disposition: form-data; name="${name}"${more}\r\n\r\n${value}\r\n`;

/** The form of the fields with something large in it. A file in them is written as one. */
function formBodies(fields: Readonly<Record<string, unknown>>): Body[] {
  const names = Object.keys(fields);
  const written = (bytes: number) =>
    names
      .map((name) =>
        fields[name] instanceof Blob
          ? part(name, fill('{"custom_id":"1"}\n', bytes), '; filename="a.bin"')
          : part(name, String(fields[name])),
      )
      .join('');
  return [
    ['a file of 30 MB', () => `${written(30 * MB)}--B--\r\n`],
    ['a field of 30 MB', () => `${part('x', fill('a', 30 * MB))}${written(20)}--B--\r\n`],
    ['many fields', () => `${fill(part('x', 'a'), 20 * MB)}${written(20)}--B--\r\n`],
  ];
}

/** Cases of one operation; none where it has no body. */
export function casesOf(operation: Operation): OperationCase[] {
  const { id, body, family } = operation;
  if (body === 'none') return [];
  const { fields = {}, path = operation.path, base = 'openai' } = CALLS[id];
  const at = (id === 'proxy' ? `/proxy${path}` : path).replace(/^\/v1/, '');
  const method = operation.method === 'ANY' ? 'POST' : operation.method;
  const json = body === 'multipart' || body === 'stream' ? [] : jsonBodies(fields);
  const forms = body === 'json' || body === 'optional' ? [] : formBodies(fields);
  const typed = [
    ...json.map(([what, make]) => ({ what, make, headers: JSON_TYPE })),
    ...forms.map(([what, make]) => ({ what, make, headers: FORM })),
  ];
  // Files, batches and jobs are also kept and run by Sluice itself.
  const providers = family === 'job' ? [`@${base}`, 'gateway'] : [`@${base}`];
  return providers.flatMap((provider) =>
    typed.map(({ what, make, headers }) => ({
      operation: id,
      title: `${id} of ${provider}: ${what}`,
      method,
      path: at,
      headers: { ...headers, 'x-gateway-provider': provider },
      body: make,
    })),
  );
}

/** Operations whose body is at most a few KB by its own limit, and that limit. Only these need no case. */
export const SMALL_BODIES: Readonly<Partial<Record<OperationId, string>>> = {};

/** Every operation that takes a body. */
export const TAKING_BODIES: readonly Operation[] = Object.values(OPERATIONS).filter(({ body }) => body !== 'none');
