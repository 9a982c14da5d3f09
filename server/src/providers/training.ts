/**
 * How a provider trains, keeps files and runs batches. Unlike a `Binding` one operation may take several calls (create a
 * dataset, then upload; read two result files), so an adapter is a set of functions over an injected, guarded `call`;
 * it opens no socket and keeps no state.
 */
import type { Readable } from 'node:stream';
import type { JsonObject, JsonValue } from '../kernel/json.ts';
import type {
  Batch,
  BatchRequest,
  FileObject,
  FineTuningJob,
  JobCheckpoint,
  JobEvent,
  JobRequest,
  Page,
  PageRequest,
  RowFormat,
} from '../operations/training.ts';
import type { Credentials } from './credentials.ts';

/** One upstream call. */
export interface AdapterRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE' | 'HEAD';
  /** Absolute. A host other than the account's own is judged by the egress guard before anything is sent. */
  readonly url: URL;
  /** Flat `[name, value, …]`, lower-case names. */
  readonly headers: readonly string[];
  readonly body: Buffer | Readable | null;
  /** Bytes of a streamed body when known; sent as content-length, else the body goes chunked. */
  readonly length?: number;
  /** True (default): operator's own headers of the account travel along. False for signed URLs and token endpoints. */
  readonly accountHeaders?: boolean;
  /** Milliseconds until the head of the answer. Default 60 000. */
  readonly timeoutMs?: number;
  /**
   * The call takes back something that would go on costing money (an open multipart upload): it is sent although the
   * caller has left or the time of the request is over.
   */
  readonly cleanup?: boolean;
  /**
   * The call is made for all who wait for the same token: it goes on when the one that began it has left. Its own time
   * limit bounds it.
   */
  readonly shared?: boolean;
}

export interface AdapterAnswer {
  readonly status: number;
  /** Lower-case name → last value. */
  readonly headers: Readonly<Record<string, string>>;
  /** The whole body as text, at most `limit` bytes (default 16 MiB), else `upstream_invalid`. */
  text(limit?: number): Promise<string>;
  /** The body parsed with big integers kept; `upstream_invalid` when it is no JSON. */
  json(): Promise<JsonValue>;
  /** The body as it arrives; back-pressure reaches the socket. Consume or destroy it. */
  readonly stream: Readable;
}

/**
 * Sends one call. Resolves with whatever status the provider answered; redirects are not followed. Rejects with a
 * SluiceError (`upstream_unreachable`, `timeout`, `client_closed` …) when there is no answer.
 */
export type Call = (request: AdapterRequest) => Promise<AdapterAnswer>;

export interface AdapterContext extends AccessContext {
  /** Fields of `drop_params`: what cannot be expressed and is listed here is left out instead of refused. */
  readonly dropParams: ReadonlySet<string>;
}

/** What signing in to an account takes: guarded calls to token endpoints, and tokens that are kept. */
export interface AccessContext {
  readonly credentials: Credentials;
  /** Base URL of the account (custom host, else the provider's own), no trailing slash: `https://api.openai.com/v1`. */
  readonly base: string;
  /** Whether `base` is a custom host: hosts derived from a region or resource name must then not be used. */
  readonly customHost: boolean;
  /** Whether the operator trusts the host of an address: the server's own identity goes there and to its cloud only. */
  readonly trusts?: (url: string) => boolean;
  readonly call: Call;
  /** Gateway headers of the request or of `gateway_options`: `x-gateway-object-store-bucket` … lower case. */
  readonly header: (name: string) => string | undefined;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  readonly uuid: () => string;
  /** Access tokens of cloud accounts, shared by concurrent calls: see `providers/token-cache.ts`. */
  readonly tokens: TokenCache;
  /**
   * The server's own cloud identity. Given only for stored accounts, and only when the operator lets accounts use it: a
   * caller's inline settings must never borrow it. Absent: accounts that need it are refused.
   */
  readonly ambient?: AmbientIdentity;
}

/** What the operator's environment says about the identity the server runs under. */
export interface AmbientIdentity {
  /** A variable by which cloud platforms name an identity: `AWS_ROLE_ARN`, `AZURE_FEDERATED_TOKEN_FILE` … */
  readonly variable: (name: string) => string | undefined;
  /** The content of a file that such a variable names: tokens that the platform renews in place. At most 64 KiB. */
  readonly file: (path: string) => Promise<string>;
}

/** What a token endpoint gave. Times in milliseconds since the epoch. */
export interface FreshToken<T = string> {
  readonly value: T;
  readonly expiresAt: number;
  /** From when on a new one is fetched. Default: five minutes before it expires, or after half its life if that is later. */
  readonly refreshAt?: number;
}

/** Keeps what a token endpoint gave until shortly before it expires; one fetch in flight per key. */
export interface TokenCache {
  get<T>(key: string, obtain: () => Promise<FreshToken<T>>): Promise<T>;
  /** Forgets a token that was refused; one that was fetched since stays. */
  drop(key: string, value: unknown): void;
}

/** What would be sent for a dry run: secrets are masked by the caller, who knows them. */
export interface PreparedCall {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly string[];
  readonly body: JsonObject;
}

export interface JobsAdapter {
  /** Methods and fields are checked here, before anything is uploaded: throws `unsupported_parameter` naming the field. */
  prepare(job: JobRequest, context: AdapterContext): PreparedCall;
  create(job: JobRequest, context: AdapterContext): Promise<FineTuningJob>;
  list(page: PageRequest, context: AdapterContext): Promise<Page<FineTuningJob>>;
  retrieve(id: string, context: AdapterContext): Promise<FineTuningJob>;
  cancel(id: string, context: AdapterContext): Promise<FineTuningJob>;
  /** Absent: 501. */
  pause?(id: string, context: AdapterContext): Promise<FineTuningJob>;
  resume?(id: string, context: AdapterContext): Promise<FineTuningJob>;
  events(id: string, page: PageRequest, context: AdapterContext): Promise<Page<JobEvent>>;
  checkpoints(id: string, page: PageRequest, context: AdapterContext): Promise<Page<JobCheckpoint>>;
  /** Row format the provider wants for this model and method. */
  rowFormat(job: Pick<JobRequest, 'upstreamModel' | 'method'>): RowFormat;
  /** Fewest rows a job may have; 1 when the provider states none. */
  readonly minimumRows: number;
  /** How long a job takes, where the provider knows it beforehand. */
  seconds?(job: Pick<JobRequest, 'upstreamModel'>): number;
  /** Finds a job this gateway created before it could note the answer: by name, suffix or metadata. Null: none. */
  findByName?(job: JobRequest, context: AdapterContext): Promise<FineTuningJob | null>;
}

export interface FormField {
  readonly name: string;
  readonly value: string;
}

export interface UploadRequest {
  readonly filename: string;
  readonly purpose: string;
  readonly contentType: string;
  readonly stream: Readable;
  /**
   * Form fields of the caller besides file and purpose; none where `takesFields` is not set. Where the size is not known, it
   * may grow until the stream has ended.
   */
  readonly fields?: readonly FormField[];
  /** Exact size when known. An adapter that must know it refuses (400, `x-gateway-file-upload-size`) when it is null. */
  readonly bytes: number | null;
}

export interface FileContent {
  readonly contentType: string;
  readonly bytes: number | null;
  readonly stream: Readable;
}

export interface FilesAdapter {
  upload(file: UploadRequest, context: AdapterContext): Promise<FileObject>;
  list(purpose: string | null, context: AdapterContext): Promise<readonly FileObject[]>;
  retrieve(id: string, context: AdapterContext): Promise<FileObject>;
  remove(id: string, context: AdapterContext): Promise<void>;
  content(id: string, context: AdapterContext): Promise<FileContent>;
  /**
   * Removes what uploads of exactly this file name left behind without becoming a file: open multipart uploads, datasets
   * without content. Called before an upload is repeated whose process was killed; doing nothing is fine. Absent where an
   * upload that did not finish leaves nothing.
   */
  abandon?(filename: string, context: AdapterContext): Promise<void>;
  /** The size must be known before the first byte is sent; the caller then keeps the upload on disk until its end. */
  readonly needsBytes?: boolean;
  /**
   * Id that an upload of this file name will have, where it follows from name and context (object stores): a request can
   * then be checked and shown before anything is uploaded. Throws what the upload itself would refuse, such as a bucket
   * that is not named. Absent: the provider makes ids.
   */
  plannedId?(filename: string, context: AdapterContext): string;
  /**
   * Present where a stored file is of use to one model only: a caller's upload must then name it in
   * `x-gateway-provider-model`, and its rows are converted to this format on the way, those of batches by `inputLine`.
   * Managed jobs and batches convert by themselves before they upload.
   */
  rowFormat?(model: string, context: AdapterContext): RowFormat;
  /**
   * True where the provider is asked in OpenAI's shape: form fields that Sluice does not know go on to it. Elsewhere they are
   * refused by name, for there is nothing that they could become.
   */
  readonly takesFields?: boolean;
  /** Upload purposes the provider knows; others are refused by name. */
  readonly purposes: ReadonlySet<string>;
  /** True when ids are object URIs (`s3://`, `gs://`): a job may then name objects that were not uploaded through Sluice. */
  readonly objectUris: boolean;
}

export interface BatchesAdapter {
  prepare(batch: BatchRequest, context: AdapterContext): PreparedCall;
  create(batch: BatchRequest, context: AdapterContext): Promise<Batch>;
  /**
   * Present where a batch is created by one request that holds all of its lines, from no file: `create` then answers
   * 400. `lines` gives the OpenAI batch lines of a file kept by Sluice from the start each time it is called; it is
   * called twice (sizes and faults first, then the sending), so that nothing is held in memory and a bad line costs no
   * upstream call. Such an adapter has no `inputLine`: it converts by itself.
   */
  createFromLines?(
    batch: BatchRequest,
    lines: () => AsyncIterable<JsonObject>,
    context: AdapterContext,
  ): Promise<Batch>;
  list(page: PageRequest, context: AdapterContext): Promise<Page<Batch>>;
  retrieve(id: string, context: AdapterContext): Promise<Batch>;
  cancel(id: string, context: AdapterContext): Promise<Batch>;
  /** JSONL in Sluice's shape of batch results, streamed; results and errors together. 400 when the batch is not completed. */
  output(id: string, context: AdapterContext): Promise<Readable>;
  /** Turns one OpenAI batch line into the provider's input line; absent: unchanged. Throws on what it cannot hold. */
  inputLine?(line: JsonObject, batch: BatchRequest): JsonObject;
  findByName?(batch: BatchRequest, context: AdapterContext): Promise<Batch | null>;
}

/** Hangs on `Provider.training`. An absent part answers 501 with no upstream call. */
export interface TrainingAdapter {
  readonly jobs?: JobsAdapter;
  readonly files?: FilesAdapter;
  readonly batches?: BatchesAdapter;
}
