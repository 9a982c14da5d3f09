/**
 * What a guardrail check is: parameters, the phases it judges, and a judgement over what a request or an answer
 * says. Checks are pure where they can be: whatever reaches outside does it through `CheckHttpClient`, never by itself.
 */
import type { z } from 'zod';

/** `input` before the call, `output` after it. */
export type Phase = 'input' | 'output';
/** Whose traffic: calls of models, or of MCP tools. */
export type Target = 'llm' | 'mcp_tools';

/** One text of a request or answer. Every message and content part is one, tool results and tool-call arguments included. */
export interface TextPart {
  /** Where it stands, as people write it: `messages[2].content[0].text`. Names what a replacement replaces. */
  readonly path: string;
  readonly role: 'system' | 'user' | 'assistant' | 'tool' | null;
  readonly text: string;
}

/** What a check judges. Functions read on demand and remember: most checks need little of it. */
export interface Subject {
  readonly phase: Phase;
  /**
   * Null: the texts are whole. In a stream that is judged while it runs, the texts are a window of the answer: what was
   * judged last, cut to the judge's `lookBehind`, and the new piece.
   */
  readonly window: {
    /** Whether the window begins where the answer does. */
    readonly starts: boolean;
    /** Whether nothing follows: what touches the end of a window that does not end is judged again with more behind it. */
    readonly ends: boolean;
  } | null;
  /** In order; which messages are looked at is the guardrail's choice and already applied. */
  readonly texts: readonly TextPart[];
  /** The texts of the last message (input) or of the whole answer (output), joined by line breaks. */
  latest(): string;
  /** The request's body as JSON, or undefined where it has none. */
  request(): unknown;
  /** Fields of a body that is a form, in order, files as null; absent: it is none. */
  form?(): readonly (readonly [name: string, value: string | null])[];
  /** The answer as JSON; undefined in the input phase. */
  answer(): unknown;
  /** Whether the answer calls tools. */
  readonly callsTools: boolean;
  /** Model as it was asked for, without a provider slug; null where there is none. */
  readonly model: string | null;
  /** What is asked for beside it: the model of the address, a deployment that the caller has chosen. */
  readonly otherModels?: readonly string[];
  readonly provider: string | null;
  /** The operation's request type, such as `chatComplete`. */
  readonly requestType: string;
  readonly streams: boolean;
  /** Whether a check before this one changed the request (input) or the answer (output). */
  readonly transformed: boolean;
  /** Status of the answer; null in the input phase. */
  readonly status: number | null;
  readonly metadata: Readonly<Record<string, string>>;
  /** A header of the caller's request, name in lower case. */
  header(name: string): string | undefined;
}

/** A text that a check wants in place of another. */
export interface Replacement {
  readonly path: string;
  readonly text: string;
}

/** Where something was found, without the thing itself: never holds what a check was made to keep out of sight. */
export interface Excerpt {
  readonly path: string;
  /** Offsets in UTF-16 units into the text at `path`. */
  readonly start: number;
  readonly end: number;
  /** What it is: `EMAIL_ADDRESS`, `word 2`, `line 3`. */
  readonly kind: string;
}

export interface Judgement {
  readonly verdict: boolean;
  /** Why, for the record and the answer: JSON, no secrets, no matched text. */
  readonly data: Readonly<Record<string, unknown>> | null;
  readonly excerpts?: readonly Excerpt[];
  /** Texts to send on in place of those that were judged (redaction, prefixes). */
  readonly replacements?: readonly Replacement[];
  /** The whole request or answer in place of the one that was judged (webhooks). */
  readonly replaced?: unknown;
}

/** Bytes and weight (`json-exact.ts`) of an answer. */
export interface MostRead {
  readonly bytes: number;
  readonly weight: number;
}

/** What checks that call others may use: everything passes the egress guard, ends with `signal`, and is limited in size. */
export interface CheckHttpClient {
  readonly signal: AbortSignal;
  /**
   * Throws for network faults, for answers over `maxBytes` (1 MiB when absent), after `timeoutMs` where it is given and
   * shorter than what is left, and for what the guard refuses. Follows no redirect.
   */
  call(request: {
    readonly url: string;
    readonly method: 'GET' | 'POST' | 'PUT' | 'HEAD';
    readonly headers: Readonly<Record<string, string>>;
    readonly body: string | Uint8Array | null;
    readonly maxBytes?: number;
    readonly timeoutMs?: number;
  }): Promise<{ readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: Buffer }>;
  /** What is read at most of an answer that may take the place of a body: of the event loop it takes too much time. */
  readonly most: MostRead;
  /** Whose check it is: what is scarce is shared between owners. */
  readonly owner: string;
  /** Whether a host name has an address that the guard lets calls go to. */
  resolves(host: string): Promise<boolean>;
  /** Milliseconds since the epoch. */
  now(): number;
}

/** A check could not be carried out; the message is for the record and the caller. How that counts is the runner's to say. */
export class CheckError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'CheckError';
  }
}

/** Parameters that every check may have; the catalog reads them. */
export interface Common {
  /** Milliseconds the runner gives the check; null: its own default. */
  readonly timeoutMs: number | null;
  /** Whether a check that cannot be carried out counts as failed. */
  readonly failOnError: boolean;
  /** Headers of the caller's request that are sent along, lower case. */
  readonly forwardHeaders: readonly string[];
  /** What a check of a hosted service uses in place of the account's own. */
  readonly credentials: Readonly<Record<string, unknown>> | null;
}

/** One guardrail's check, ready to judge. */
export interface Judge {
  /**
   * How an output check may judge a stream before its end: with this many characters seen before each new piece. Then the
   * whole answer fails exactly if one window does. Null: only the whole answer can be judged.
   */
  readonly lookBehind: number | null;
  /** Whether it judges members of a body that are no texts, as fields of a form may be. */
  readonly judgesParameters?: boolean;
  /** Throws `CheckError`, or what the `CheckHttpClient` throws. */
  judge(subject: Subject, outside: CheckHttpClient): Judgement | Promise<Judgement>;
}

/** What others must know of a check besides its judgement. */
export interface CheckTraits {
  /**
   * What it judges in place of texts: the head of a request, with its metadata and its kind, or also the model and the
   * fields of its body. Absent: texts. A request whose texts cannot be read is refused where a check needs them.
   */
  readonly judges?: 'head' | 'fields';
  /** Whether what it sends on replaces the whole request or answer, the work of checks before it included. */
  readonly replacesWhole?: true;
}

export interface Check<P = unknown> extends CheckTraits {
  /** `default.regexMatch`. */
  readonly id: string;
  readonly phases: readonly Phase[];
  readonly targets: readonly Target[];
  /** Strict; messages say what to do. The common parameters are not among them. */
  readonly parameters: z.ZodType<P>;
  /** What `credentials` must be; absent: they are not used. */
  readonly credentials?: z.ZodType;
  /** Milliseconds the runner gives a check that calls others; null: computed here, no separate limit. */
  readonly timeoutMs: number | null;
  /** Whether it may replace texts or bodies, besides what it redacts. */
  readonly mutates: boolean;
  /** Whether these parameters ask for texts to be taken out; absent: none do. */
  redacts?(parameters: NoInfer<P>): boolean;
  /** Whether it judges texts in canonical form (`canonical.ts`); absent: as they were sent, or no texts at all. */
  readonly canonical?: true;
  /** Makes the judge of one guardrail's parameters: what can be prepared is prepared once. */
  compile(parameters: P, common: Common): Judge;
}
