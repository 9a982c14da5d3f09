/** Bodies of many large entries: read one by one, and of each only what its action keeps. */
import type { IncomingMessage } from 'node:http';
import type { BodyBudget } from '../http/body-budget.ts';
import { returnBuffer } from '../http/buffer-pool.ts';
import { readBody } from '../http/read-body.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
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
  /** Takes what is to be called when the entries are not needed any more: until then they count as the bytes of the body. */
  readonly hold: (release: () => void) => void;
}

/**
 * What is kept of each entry: of a list a list, of one object that one; null without a body. Throws `validation` for what is no
 * JSON, and names each such entry, and each that is too large; `too_large` for the body as a whole.
 */
export async function readEntries(
  request: IncomingMessage,
  entries: Entries,
  { clock, budget, holder, hold }: EntriesReader,
): Promise<JsonObject | readonly JsonValue[] | null> {
  const limit = entries.most * entries.bytes + ROOM;
  const body = await readBody(request, { limit, clock, holder, ...(budget === undefined ? {} : { budget }) });
  // The body and its entries are of about the same size: one count is for whichever there is.
  hold(() => budget?.release(holder, body.length));
  try {
    if (body.length === 0) return null;
    checkContentType(request.headers['content-type']);
    await nextTurn();
    const kept = await inTurns(reading(body, entries), clock);
    checkText(kept as JsonValue);
    return kept;
  } finally {
    returnBuffer(body);
  }
}

function* reading(body: Buffer, entries: Entries): Steps<JsonObject | readonly JsonValue[]> {
  if (!beginsList(body)) {
    const problem = problemOf(body, 0, entries);
    if (problem !== null) throw refused([{ path: '', message: problem }]);
    return entries.keep(parsed(body));
  }
  const items = yield* found(body, entries.most);
  if (items.length > entries.most) {
    throw new SluiceError('validation', `The body must have at most ${entries.most} entries.`);
  }
  const kept: JsonValue[] = [];
  const faults: Issue[] = [];
  for (const [at, { start, end }] of items.entries()) {
    const item = body.subarray(start, end);
    const problem = problemOf(item, start, entries);
    if (problem !== null) faults.push({ path: `[${at}]`, message: problem });
    else if (faults.length === 0) kept.push(entries.keep(parsed(item)));
    yield;
  }
  if (faults.length > 0) throw refused(faults);
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

/** What is wrong with the bytes of an entry, which begin at `start` of the body; null when it may be parsed. */
function problemOf(entry: Buffer, start: number, { bytes }: Entries): string | null {
  if (entry.length > bytes) return `must have at most ${bytes} bytes`;
  try {
    scanJson(entry, []);
    return null;
  } catch (error) {
    if (!(error instanceof JsonScanError)) throw error;
    const offset = Math.min(error.offset, entry.length) + start;
    return error.message.replace(/^The body/, 'The entry').replace(/[0-9]+\)$/, `${offset})`);
  }
}

const parsed = (entry: Buffer): JsonObject => JSON.parse(entry.toString('utf8')) as JsonObject;

function refused(issues: readonly Issue[]): SluiceError {
  const [first, ...more] = issues;
  const path = first?.path ?? '';
  return new SluiceError(
    'validation',
    sentenceOf(path === '' ? 'The entry' : path, first?.message ?? '') + furtherIssues(more),
    {
      param: path === '' ? null : path,
      ...(more.length === 0 ? {} : { problems: problemsOf(issues.slice(0, MOST_PROBLEMS)) }),
    },
  );
}
