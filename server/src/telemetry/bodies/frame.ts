/**
 * What the journal of bodies holds: pieces of bodies as they pass, and at the end of a request what they belong to. Frames of
 * one request may have those of others between them.
 */

/** In the order in which a request has them. */
export const BODY_PARTS = ['request', 'sent', 'came', 'answer'] as const;

/** `request`: of the caller, `sent`: to the provider, `came`: from it, `answer`: to the caller. */
export type BodyPart = (typeof BODY_PARTS)[number];

/** Bits of a record's `body_flags`. */
export const BODY_FLAGS = {
  /** A body is longer than what is kept of it. */
  truncated: 1,
  /** Guardrails have changed the request or its answer. */
  redacted: 2,
  /** Pictures, sound or files are left out. */
  omitted: 4,
  /** A guardrail has denied the request: its bodies are not kept. */
  withheld: 8,
  /** The request has failed, and its answer alone is kept. */
  answerOnly: 16,
  /** There was no room. */
  lost: 32,
  /** Of a chunk alone: the bodies were erased, and do not come back when the journal is read again. */
  erased: 64,
} as const;

/** What is known of one part, beside its bytes. */
export interface PartFacts {
  readonly method?: string | undefined;
  /** Without its query. */
  readonly url?: string | undefined;
  readonly status?: number | undefined;
  /** Masked. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Bytes of the whole body, kept or not. */
  readonly bytes: number;
  /** The body is longer than what is kept of it. */
  readonly truncated?: boolean | undefined;
  /** Pictures, sound and files that are left out. */
  readonly omitted?: number | undefined;
  /** Its bytes are those of another part. */
  readonly same?: BodyPart | undefined;
}

/** The end of a request: where its bodies go. */
export interface BodyEnd {
  readonly organisation_id: string;
  readonly workspace_id: string;
  readonly chunk: string;
  readonly slot: number;
  /** Arrival of the request, milliseconds since the epoch. */
  readonly time: number;
  /** As far as they were known at the end of the request. */
  readonly flags: number;
  readonly parts: Readonly<Partial<Record<BodyPart, PartFacts>>>;
}

export type BodyFrame =
  | {
      readonly kind: 'piece';
      readonly id: string;
      readonly part: BodyPart;
      readonly attempt: number;
      readonly bytes: Buffer;
    }
  | { readonly kind: 'end'; readonly id: string; readonly end: BodyEnd }
  /** No further request goes to this chunk. */
  | { readonly kind: 'close'; readonly id: string };

const KINDS = ['piece', 'end', 'close'] as const;
const HEAD = 23;

/** The first bytes of a frame whose content has `length` bytes. `id`: of the request, of the chunk for `close`. */
export function frameHead(kind: BodyFrame['kind'], id: string, part: number, attempt: number, length: number): Buffer {
  const head = Buffer.allocUnsafe(HEAD);
  head.writeUInt32LE(HEAD - 4 + length, 0);
  head[4] = KINDS.indexOf(kind);
  head[5] = part;
  head[6] = Math.min(attempt, 255);
  head.write(id.replaceAll('-', ''), 7, 'hex');
  return head;
}

/** The frames of a group, in their order. Throws RangeError for what is none. */
export function* framesIn(group: Buffer): Generator<BodyFrame> {
  for (let at = 0; at < group.length; ) {
    const end = at + 4 + group.readUInt32LE(at);
    if (end > group.length || end - at < HEAD) throw new RangeError('a frame of bodies is cut');
    const id = uuidIn(group, at + 7);
    const bytes = group.subarray(at + HEAD, end);
    const kind = KINDS[group[at + 4] ?? -1];
    if (kind === 'piece') {
      yield { kind, id, part: BODY_PARTS[group[at + 5] ?? -1] ?? 'request', attempt: group[at + 6] ?? 0, bytes };
    } else if (kind === 'end') yield { kind, id, end: JSON.parse(bytes.toString('utf8')) as BodyEnd };
    else if (kind === 'close') yield { kind, id };
    else throw new RangeError('a frame of bodies is of no known kind');
    at = end;
  }
}

function uuidIn(bytes: Buffer, at: number): string {
  const hex = bytes.toString('hex', at, at + 16);
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
