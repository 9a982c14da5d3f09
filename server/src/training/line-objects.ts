/**
 * Objects that the lines of a batch file name. A provider runs the lines with the rights of the account, so on an account
 * that several workspaces share each line is judged as the same request alone would be.
 */
import { isUtf8 } from 'node:buffer';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { type Named, noSuch } from '../runtime/owners.ts';
import { mayRefer, type Reference, type References, referencesOf } from '../runtime/references.ts';
import { type RequestedObjects, requestedObjects } from '../runtime/requested-objects.ts';
import { parseRow } from './datasets/parse-row.ts';
import { RowFault } from './datasets/report.ts';
import { invalid } from './fields.ts';
import type { ObjectOwnership } from './object-ownership.ts';

/** Longest line, bytes. A line is kept until its end was read. */
const MAX_LINE_BYTES = 32 * 1024 * 1024;
/** Objects of one question to the store, and of those found so far that are remembered. */
const AT_ONCE = 500;
const REMEMBERED = 10_000;
const LF = 10;

interface Place {
  readonly line: number;
  readonly param: string;
}

const keyOf = ({ kind, id }: Named): string => `${kind} ${id}`;

/** Looks up whose the objects are that lines name, many at a time. */
export class LineObjects {
  readonly #ledger: ObjectOwnership;
  readonly #param: string;
  readonly #known = new Set<string>();
  #wanted: (Reference & Place)[] = [];
  #uris: (Place & { readonly uri: string })[] = [];

  /** @param param field of the request that names the file */
  constructor(ledger: ObjectOwnership, param: string) {
    this.#ledger = ledger;
    this.#param = param;
  }

  /**
   * @param line from 1; throws 400 for more than `MAX_REFERENCES`, 403 for what has no known owner, 404 for what is not the
   *   workspace's
   */
  async line(line: number, value: JsonObject): Promise<void> {
    const { objects, uris, unknown } = this.#referencesOf(line, value);
    const asked = askedBy(value);
    if (asked.kind === 'closed') {
      throw new SluiceError(
        'forbidden',
        `Line ${line}: its method and url may reach what belongs to another workspace, and the account is shared by several. Name a path that keeps nothing, such as /v1/chat/completions, or use an integration that only this workspace uses.`,
        { param: this.#param },
      );
    }
    if (asked.kind === 'one') this.#wanted.push({ kind: asked.of, id: asked.id, param: 'url', line });
    if (unknown !== null) {
      throw new SluiceError(
        'forbidden',
        `Line ${line}, ${unknown}: the account is shared by several workspaces, and this may name what belongs to another one. Leave it out, or use an integration that only this workspace uses.`,
        { param: this.#param },
      );
    }
    for (const one of objects) if (!this.#known.has(keyOf(one))) this.#wanted.push({ ...one, line });
    for (const { uri, param } of uris) if (!this.#known.has(uri)) this.#uris.push({ uri, param, line });
    if (this.#wanted.length + this.#uris.length >= AT_ONCE) await this.settle();
  }

  #referencesOf(line: number, value: JsonObject): References {
    try {
      return referencesOf(value);
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      throw new SluiceError(error.kind, `Line ${line}, ${error.param}: ${error.message}`, { param: this.#param });
    }
  }

  /** Asks for what lines named since the last question. */
  async settle(): Promise<void> {
    const [wanted, uris] = [this.#wanted, this.#uris];
    this.#wanted = [];
    this.#uris = [];
    if (this.#known.size > REMEMBERED) this.#known.clear();
    for (let from = 0; from < wanted.length; from += AT_ONCE) {
      const some = wanted.slice(from, from + AT_ONCE);
      const missing = await this.#ledger.missing(some);
      const place = missing === null ? undefined : some.find((one) => keyOf(one) === keyOf(missing));
      if (place !== undefined) throw this.#notFound(place, place.kind);
      for (const one of some) this.#known.add(keyOf(one));
    }
    const foreign = await this.#ledger.foreignAt(uris.map(({ uri }) => uri));
    const place = uris.find(({ uri }) => uri === foreign);
    if (place !== undefined) throw this.#notFound(place, 'file');
    for (const { uri } of uris) this.#known.add(uri);
  }

  #notFound({ line, param }: Place, kind: Named['kind']): SluiceError {
    return new SluiceError('unknown_reference', `Line ${line}, ${param}: ${noSuch(kind)}`, { param: this.#param });
  }
}

/** What a line without an address asks for is what its batch does. */
function askedBy(value: JsonObject): RequestedObjects {
  let [method, url]: (JsonValue | undefined)[] = ['POST', undefined];
  for (const [name, inner] of Object.entries(value)) {
    const lower = name.toLowerCase();
    if (lower === 'method' && inner !== null) method = inner;
    else if (lower === 'url' && inner !== null) url = inner;
  }
  if (url === undefined && method === 'POST') return { kind: 'open' };
  if (typeof method !== 'string' || typeof url !== 'string') return { kind: 'closed' };
  return requestedObjects(method.toUpperCase(), url.replace(VERSION, '/'));
}

const VERSION = /^\/(?:openai\/)?v\d+\//i;
/** A method or an address that is not the usual one, wherever it is: such a line is parsed. */
const ODD =
  /"(?:url(?!"\s*:\s*"\/v1\/(?:chat\/completions|completions|responses|embeddings|moderations)")|method(?!"\s*:\s*"POST"))/i;

/** Whether a line may name an object, in its body or by its address. */
const mayReach = (line: Buffer): boolean => mayRefer(line) || ODD.test(line.toString('latin1'));

/**
 * The bytes of a file, each line of it judged before its last byte is passed on. Memory is one chunk and one line; nothing is
 * parsed where no line may name an object.
 */
export async function* judged(
  source: AsyncIterable<Buffer>,
  ledger: ObjectOwnership,
  param: string,
): AsyncGenerator<Buffer> {
  const objects = new LineObjects(ledger, param);
  let held: Buffer[] = [];
  let size = 0;
  let number = 1;
  for await (const chunk of source) {
    const end = chunk.lastIndexOf(LF) + 1;
    if (end === 0) {
      held.push(chunk);
      size += chunk.length;
      if (size > MAX_LINE_BYTES) throw unread(number, `it has more than ${MAX_LINE_BYTES} bytes`, param);
      continue;
    }
    const whole = held.length === 0 ? chunk.subarray(0, end) : Buffer.concat([...held, chunk.subarray(0, end)]);
    number = await judgeLines(whole, number, objects, param);
    yield whole;
    held = end === chunk.length ? [] : [chunk.subarray(end)];
    size = chunk.length - end;
  }
  const last = Buffer.concat(held);
  await judgeLines(last, number, objects, param);
  if (last.length > 0) yield last;
}

/** Whole lines; the number of the next one. */
async function judgeLines(bytes: Buffer, first: number, objects: LineObjects, param: string): Promise<number> {
  // Another encoding would hide names from the search, and a reader may guess it.
  const plain = isText(bytes);
  const looked = !plain || mayReach(bytes);
  let number = first;
  for (let at = 0; at < bytes.length; number++) {
    const found = bytes.indexOf(LF, at);
    const end = found === -1 ? bytes.length : found;
    if (looked) {
      const line = bytes.subarray(at, end);
      if (!plain && !isText(line)) throw unread(number, 'the line is not UTF-8', param);
      if (mayReach(line)) await objects.line(number, parsed(line, number, param));
    }
    at = end + 1;
  }
  await objects.settle();
  return number;
}

const isText = (bytes: Buffer): boolean => !bytes.includes(0) && isUtf8(bytes);

function parsed(line: Buffer, number: number, param: string) {
  try {
    return parseRow(line);
  } catch (error) {
    throw error instanceof RowFault ? unread(number, error.message, param) : error;
  }
}

function unread(line: number, reason: string, param: string): SluiceError {
  return invalid(
    param,
    `Line ${line} cannot be read: ${reason}. The account is shared, and the objects that a line names are checked; write one JSON object per line.`,
  );
}
