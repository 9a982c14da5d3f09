/**
 * The body of a request as it goes to one target: the caller's bytes with a few members spliced, or another body altogether.
 * Made of data alone, so that a thread makes it as the event loop does (`large/`).
 */
import { SluiceError } from '../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { type ScanResult, type Splice, spliceParts } from '../kernel/json-scan.ts';
import { holdsQuoted } from '../kernel/quoted-texts.ts';
import { withoutCallExtras } from '../operations/convert/chat-calls.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import { SHAPES } from '../operations/shapes/index.ts';
import type { Bound } from '../providers/binding.ts';
import type { Binding, CallContext, Prefill } from '../providers/provider.ts';
import type { FieldChanges } from '../telemetry/decision-facts.ts';
import { changesBetween } from './field-changes.ts';
import { type Media, withMedia } from './media-names.ts';
import { withPrefill } from './relay/stream-resume.ts';
import type { Shaping } from './shaping.ts';
import { shapingEdits } from './splice-shaping.ts';
import type { RequestBody } from './state/body.ts';

/** What a body is made of; the binding and the context say for whom. */
export interface BodyOrder {
  readonly operation: OperationId;
  /** JSON. */
  readonly body: RequestBody;
  readonly scan: ScanResult;
  /** The model as the caller named it. */
  readonly asked: string;
  /** The path names a deployment. */
  readonly deployment: boolean;
  readonly stream: boolean;
  /** The body is already what the config makes of it. */
  readonly shaped: boolean;
  /** What is still to be done to it. */
  readonly shaping: Shaping | null;
  readonly media: Media | null;
  /** The beginning of the answer, which the request goes on from; null: it begins. */
  readonly shown: string | null;
  readonly prefill: Pick<Prefill, 'message' | 'body'> | null;
  /** The record tells what became of the fields. */
  readonly explained: boolean;
  /** The caller's own body, where another one has taken its place; null: it still stands, or nobody asks. */
  readonly came: RequestBody | null;
}

export interface MadeBody {
  /** Edits of the caller's own bytes; null where `parts` are what is sent. */
  readonly edits: readonly Splice[] | null;
  readonly parts: readonly Buffer[];
  /** What `parts` say, where they are one body that was written in this thread; null otherwise. */
  readonly written: JsonObject | null;
  readonly stripUsage: boolean;
  readonly headers: readonly string[] | undefined;
  /** Each part is the body of a separate call. */
  readonly fanOut: boolean;
  /** Null: no step asks, or there is nothing to tell. */
  readonly changes: FieldChanges | null;
}

// Ends the name `extra_content`. Begun with a letter or a quote, the search would stop at each one: 240 µs in 100 KB, not 1.
export const EXTRA = '_content"';
const EXTRA_BYTES = Buffer.from(EXTRA);
const INCLUDE_USAGE = Buffer.from('"stream_options":{"include_usage":true}');
/** A value of so many bytes is read in the event loop. */
const SHORT = 64 * 1024;
const NO_PARTS: readonly Buffer[] = [];

/** Throws what conversions throw, and SluiceError('malformed_call') for what is no object. */
export function makeBody(order: BodyOrder, bound: Bound, context: CallContext): MadeBody {
  return editedBody(order, bound, context) ?? writtenBody(order, bound, context);
}

/** The caller's own bytes, edited; null where the body has to be written anew. */
export function editedBody(order: BodyOrder, bound: Bound, context: CallContext): MadeBody | null {
  if (!isUntouched(order, bound, context)) return null;
  const touches = bound.request && bound.binding.requestTouches;
  const edited = shapingEdits(order.body.bytes, order.scan, order.shaping, touches);
  if (edited === null) return null;
  const addUsage = addsUsage(order, bound, context);
  return {
    edits: splice(order, context.model, addUsage, edited.edits),
    parts: NO_PARTS,
    written: null,
    stripUsage: addUsage,
    headers: undefined,
    fanOut: false,
    changes: order.explained ? splicedChanges(order, context.model, addUsage, edited.changes) : null,
  };
}

function writtenBody(order: BodyOrder, bound: Bound, context: CallContext): MadeBody {
  const { binding, convert } = bound;
  const addUsage = addsUsage(order, bound, context);
  const came = objectIn(order.body.value());
  let body = givenBody(order, bound, context);
  if (convert === null && addUsage)
    body = {
      ...body,
      stream_options: { ...(isObject(body.stream_options) ? body.stream_options : {}), include_usage: true },
    };
  // What a conversion makes of it is another body altogether: told is what the config does.
  const own = body;
  const headers = convert === null ? binding.headers?.(body, context) : undefined;
  const things = convert === null ? (binding.fanOut?.split?.(body, context) ?? null) : null;
  if (things !== null) {
    const parts = things.map((one) => Buffer.from(JSON.stringify(bound.request?.(one, context) ?? one)));
    return { edits: null, parts, written: null, stripUsage: false, headers, fanOut: true, changes: null };
  }
  if (bound.request !== undefined) body = bound.request(body, context);
  if (order.prefill !== null) body = withPrefill(body, order.prefill);
  const before = order.came === null ? null : order.came.value();
  return {
    edits: null,
    parts: [Buffer.from(JSON.stringify(body))],
    written: body,
    stripUsage: addUsage && convert === null,
    headers,
    fanOut: false,
    changes: order.explained ? changesBetween(isObject(before) ? before : came, convert === null ? body : own) : null,
  };
}

/** What is sent: over the caller's memory where it is only edited. */
export function partsOf({ edits, parts }: MadeBody, body: Buffer): Buffer[] {
  if (edits === null) return [...parts];
  return edits.length === 0 ? [body] : spliceParts(body, edits);
}

/**
 * What the edited bytes of `editedBody` say, without parsing them: who asks for the values of the request and for those of what is
 * sent has one parse. Throws SyntaxError.
 *
 * @param addsUsage `MadeBody.stripUsage`
 */
export function editedValue(
  { body, shaping }: Pick<BodyOrder, 'body' | 'shaping'>,
  model: string,
  addsUsage: boolean,
): JsonObject {
  const out = { ...objectIn(body.under(shaping)) };
  const named = body.scan?.get('model');
  // As `splice` does it.
  if (named?.kind === 'string' || (named === undefined && model !== '')) out.model = model;
  const { stream_options: options } = out;
  if (addsUsage) out.stream_options = { ...(isObject(options) ? options : {}), include_usage: true };
  return out;
}

/** Whether `editedBody` reads no more than a few short values, however long the body is. */
export function isEditedQuickly(order: BodyOrder, bound: Bound): boolean {
  if (bound.request !== undefined || order.shaping !== null || order.came !== null) return false;
  const options = order.scan.get('stream_options');
  return options === undefined || options.end - options.start <= SHORT;
}

/** What the request of this order was made from, for answers that depend on it: what `Bound.request` was given. */
export function askedBody(order: BodyOrder, bound: Bound, context: CallContext): JsonObject {
  const body = givenBody(order, bound, context);
  const things = bound.convert === null ? bound.binding.fanOut?.split?.(body, context) : null;
  return things?.at(-1) ?? body;
}

function objectIn(value: JsonValue): JsonObject {
  if (!isObject(value)) throw new SluiceError('malformed_call', 'The body must be a JSON object.');
  return value;
}

/** What the provider's own transform, or the conversion, is given. */
function givenBody(order: BodyOrder, bound: Bound, context: CallContext): JsonObject {
  const { binding } = bound;
  const { wire } = OPERATIONS[order.operation];
  let body = objectIn(order.body.under(order.shaping));
  if (holdsForeignExtras(order, bound, context)) body = withoutCallExtras(body);
  if (binding.inlines !== undefined) body = withMedia(wire.conversations, body, order.media, binding.inlines);
  if (typeof body.model === 'string' || context.model !== '') body = { ...body, model: context.model };
  return order.shown === null ? body : (wire.resume?.goingOn(body, order.shown) ?? body);
}

/** What `splice` changes, beside what guardrails and `shaped` have. */
function splicedChanges(order: BodyOrder, model: string, addUsage: boolean, shaped: FieldChanges): FieldChanges {
  const { scan } = order;
  const came = order.came === null ? null : order.came.value();
  const before = isObject(came) ? came : null;
  const now = before === null ? null : order.body.value();
  const { added, dropped, overridden } =
    before !== null && isObject(now) ? changesBetween(before, { ...now, model }) : shaped;
  const replaced = before === null && scan.get('model') !== undefined && model !== order.asked;
  const named = before === null && scan.get('model') === undefined && model !== '';
  if (!replaced && !named && !addUsage) return { added, dropped, overridden };
  const options = addUsage && scan.get('stream_options') === undefined;
  return {
    added: [...added, ...(named ? ['model'] : []), ...(options ? ['stream_options'] : [])],
    dropped,
    overridden: [...overridden, ...(replaced ? ['model'] : []), ...(addUsage && !options ? ['stream_options'] : [])],
  };
}

/** Whether the caller's own bytes can be sent. */
function isUntouched(order: BodyOrder, bound: Bound, context: CallContext): boolean {
  if (order.shown !== null || holdsForeignExtras(order, bound, context)) return false;
  const { binding, convert, request } = bound;
  if (request === undefined) return true;
  return (
    convert === null && binding.requestTouches !== undefined && !holdsQuoted(order.body.bytes, binding.requestTouches)
  );
}

/**
 * Whether calls in the history carry what only the provider that made them wants back: others refuse fields they do not
 * know. A chat provider at a host of the caller's choice may be the one that made them.
 */
function holdsForeignExtras(
  { operation, body, scan }: BodyOrder,
  { binding, convert }: Bound,
  context: CallContext,
): boolean {
  if (convert !== null || OPERATIONS[operation].family !== 'chat') return false;
  if (!(scan.texts?.get(EXTRA) ?? body.bytes.includes(EXTRA_BYTES))) return false;
  if (binding.target?.extensions?.has('extra_content') === true) return false;
  return !SHAPES[binding.shape].hasCallExtras || context.elsewhere !== true;
}

function addsUsage(order: BodyOrder, { binding }: Bound, context: CallContext): boolean {
  return order.stream && knowsUsageOption(binding, context) && wantsNoUsage(order);
}

function knowsUsageOption({ streamUsageOption: known }: Binding, context: CallContext): boolean {
  return typeof known === 'function' ? known(context) : known === true;
}

/** The caller did not ask for usage in the stream: no `stream_options`, or one without `include_usage: true`. */
function wantsNoUsage({ scan, body }: BodyOrder): boolean {
  const range = scan.get('stream_options');
  if (range === undefined || range.kind === 'null') return true;
  if (range.kind !== 'object') return false;
  const value: unknown = JSON.parse(body.bytes.toString('utf8', range.start, range.end));
  return !isObject(value) || value.include_usage !== true;
}

/** Edits of `model`, `stream_options` and what the config says, and of those only what must be. */
function splice(order: BodyOrder, model: string, addUsage: boolean, shaped: readonly Splice[]): readonly Splice[] {
  const { scan, body } = order;
  const edits = [...shaped];
  const range = scan.get('model');
  if (range?.kind === 'string') {
    // What differs from what the provider knows: `@slug/model`, the name of a deployment, a model named in the path. A
    // body that was shaped for another target may name that one's model.
    if (body.bytes[range.start + 1] === 64 || order.shaped || model !== order.asked || order.deployment)
      edits.push({ start: range.start, end: range.end, bytes: Buffer.from(JSON.stringify(model)) });
  } else if (range === undefined && model !== '') {
    const bytes = `"model":${JSON.stringify(model)}${scan.empty ? '' : ','}`;
    edits.push({ start: scan.insertAt, end: scan.insertAt, bytes: Buffer.from(bytes) });
  }
  if (addUsage) {
    const options = scan.get('stream_options');
    if (options === undefined) {
      const bytes = scan.empty ? INCLUDE_USAGE : Buffer.concat([INCLUDE_USAGE, Buffer.from(',')]);
      edits.push({ start: scan.insertAt, end: scan.insertAt, bytes });
    } else {
      const value: unknown = JSON.parse(body.bytes.toString('utf8', options.start, options.end));
      edits.push({
        start: options.start,
        end: options.end,
        bytes: Buffer.from(JSON.stringify({ ...(isObject(value) ? value : {}), include_usage: true })),
      });
    }
  }
  return edits;
}
