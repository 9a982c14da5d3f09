/** Bodies of many large entries: read one by one, and of each only what its action keeps. */
import type { IncomingMessage } from 'node:http';
import type { BodyBudget } from '../http/body-budget.ts';
import { returnBuffer } from '../http/buffer-pool.ts';
import { readBody } from '../http/read-body.ts';
import type { Clock } from '../kernel/clock.ts';
import { type Problem, SluiceError } from '../kernel/errors.ts';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import { beginsList, type ItemRange, itemsOfList, NoListError } from '../kernel/json-list.ts';
import { JsonScanError, scanJson } from '../kernel/json-scan.ts';
import { inTurns, nextTurn, type Steps } from '../kernel/turns.ts';
import { furtherIssues, type Issue, problemsOf, sentenceOf } from '../resources/issues.ts';
import type { Entries } from '../resources/resource.ts';
import { checkContentType, checkText } from './json-body.ts';

/** Beside the entries: brackets, commas, white space. */
const ROOM = 65_536;
/** As many as an answer lists. */
const MOST_PROBLEMS = 20;

export interface EntriesReader {
  readonly clock: Clock;
  /** Where large bodies are counted; absent: nowhere. */
  readonly budget?: BodyBudget | undefined;
  /** The organisation of the caller. */
  readonly holder: string;
}

/**
 * What is kept of each entry: of a list a list, of one object that one; null without a body. Throws `validation` for what is no
 * JSON, and names each entry that is too large; `too_large` for the body as a whole.
 */
export async function readEntries(
  request: IncomingMessage,
  entries: Entries,
  { clock, budget, holder }: EntriesReader,
): Promise<JsonObject | readonly JsonValue[] | null> {
  const limit = entries.most * entries.bytes + ROOM;
  const body = await readBody(request, { limit, clock, holder, ...(budget === undefined ? {} : { budget }) });
  try {
    if (body.length === 0) return null;
    checkContentType(request.headers['content-type']);
    await nextTurn();
    const kept = await inTurns(reading(body, entries), clock);
    checkText(kept as JsonValue);
    return kept;
  } finally {
    budget?.release(holder, body.length);
    returnBuffer(body);
  }
}

function* reading(body: Buffer, entries: Entries): Steps<JsonObject | readonly JsonValue[]> {
  if (!beginsList(body)) {
    if (body.length > entries.bytes) throw tooLarge([{ path: '', message: largest(entries) }]);
    return entries.keep(parsed(body, 0));
  }
  const items = yield* found(body, entries.most);
  if (items.length > entries.most) {
    throw new SluiceError('validation', `The body must have at most ${entries.most} entries.`);
  }
  const large = items.flatMap(({ start, end }, at) => (end - start > entries.bytes ? [at] : []));
  if (large.length > 0) throw tooLarge(large.map((at) => ({ path: `[${at}]`, message: largest(entries) })));
  const kept: JsonValue[] = [];
  for (const { start, end } of items) {
    kept.push(entries.keep(parsed(body.subarray(start, end), start)));
    yield;
  }
  return kept;
}

function* found(body: Buffer, most: number): Steps<ItemRange[]> {
  try {
    return yield* itemsOfList(body, most);
  } catch (error) {
    if (!(error instanceof NoListError)) throw error;
    throw new SluiceError('validation', `The body must be a JSON list of objects: it is none at byte ${error.offset}.`);
  }
}

/** @param start where the object begins in the body */
function parsed(body: Buffer, start: number): JsonObject {
  try {
    scanJson(body, []);
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    throw new SluiceError(
      'validation',
      `${error.message.replace(/[0-9]+\)$/, `${Math.min(error.offset, body.length) + start})`)}.`,
    );
  }
  return JSON.parse(body.toString('utf8')) as JsonObject;
}

const largest = ({ bytes }: Entries) => `must have at most ${bytes} bytes`;

function tooLarge(issues: readonly Issue[]): SluiceError {
  const [first, ...more] = issues;
  const problems: Problem[] = problemsOf(issues.slice(0, MOST_PROBLEMS));
  const path = first?.path ?? '';
  return new SluiceError(
    'validation',
    sentenceOf(path === '' ? 'The entry' : path, first?.message ?? '') + furtherIssues(more),
    { param: path === '' ? null : path, ...(more.length === 0 ? {} : { problems }) },
  );
}
