/** A request that went another way than through Sluice, as its caller tells of it. */
import type { TokenUsage } from '../operations/usage.ts';
import type { KeyDefaults } from '../store/schema.ts';

export interface CustomLog {
  /** With its origin, or the path alone; without query. */
  readonly url: string;
  readonly method: string;
  /** A base provider, or `@` and the slug of a stored provider or virtual key; null where none is named. */
  readonly provider: string | null;
  readonly modelRequested: string | null;
  readonly modelAnswered: string | null;
  readonly stream: boolean;
  readonly status: number;
  /** As the provider calls the error; null where there is none. */
  readonly errorCode: string | null;
  readonly usage: TokenUsage | null;
  /** From the request to the end of the answer, milliseconds. */
  readonly latencyMs: number;
  readonly traceId: string | null;
  readonly spanId: string | null;
  readonly parentSpanId: string | null;
  readonly spanName: string | null;
  readonly metadata: Readonly<Record<string, string>>;
  readonly request: ToldPart;
  readonly answer: ToldPart;
}

/** What was sent or answered; whether it is kept is decided later. */
export interface ToldPart {
  readonly headers: Readonly<Record<string, string>>;
  /** JSON. */
  readonly body: string;
}

/** Whose they are. */
export interface CustomLogCaller {
  readonly organisationId: string;
  readonly workspaceId: string;
  readonly keyId: string | null;
  readonly userId: string | null;
  /** Of the credential: what it adds to the metadata, and whether its bodies are kept. */
  readonly defaults: Pick<KeyDefaults, 'metadata' | 'debug_log'>;
}

/** Makes records of them. */
export interface CustomLogs {
  /**
   * Resolves when all of them would survive the process being killed. One with a trace and a span is recorded once, however
   * often it is sent. Rejects with `unavailable` where the disk takes none, and with `validation` for too much metadata.
   *
   * @param pathOf how errors name the metadata of an entry, by its index
   */
  record(caller: CustomLogCaller, entries: readonly CustomLog[], pathOf: (index: number) => string): Promise<void>;
  /** Headers, in lower case, that name the provider or virtual key of a request. */
  readonly headers: { readonly provider: readonly string[]; readonly virtualKey: readonly string[] };
}
