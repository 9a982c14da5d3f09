import type { Clock } from '../kernel/clock.ts';
import type { JsonObject } from '../kernel/json.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import type { ConvertTarget } from '../operations/convert/conversion.ts';
import type { ProviderError } from '../operations/dialects/provider-error.ts';
import type { OperationId, Shape } from '../operations/operation.ts';
import type { StreamTransform } from '../operations/stream.ts';
import type { TokenUsage } from '../operations/usage.ts';
import type { Account } from './account.ts';
import type { Credentials } from './credentials.ts';
import type { AccessContext, TrainingAdapter } from './training.ts';

export type { ProviderError } from '../operations/dialects/provider-error.ts';
export type { StreamEvent, StreamTransform } from '../operations/stream.ts';
export type { Credentials } from './credentials.ts';

/** Everything a transform may know about a call. */
export interface CallContext {
  readonly operation: OperationId;
  /** Model as the provider knows it (`@slug/` already removed); empty when the operation has none. */
  readonly model: string;
  readonly stream: boolean;
  readonly credentials: Credentials;
  /** Values of `:name` segments of the operation's route, decoded. */
  readonly pathParams: Readonly<Record<string, string>>;
  /** Request headers a provider option may come from (`anthropic-beta`, `openai-organization` …), lower case. */
  readonly header: (name: string) => string | undefined;
  /** False adds fields outside the caller's shape (reasoning, native reasons) to transformed answers. */
  readonly strict: boolean;
  /** A custom host takes the place of the provider's own address. */
  readonly elsewhere?: boolean;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** Id of the request, for answers whose provider gives none. */
  readonly requestId?: string;
  /** Whether a chat caller asked for the usage chunk (`stream_options.include_usage`); by default, what `body` says. */
  readonly includeUsage?: boolean;
  /** Largest answer of the model in tokens, when the price and model catalogue knows it. */
  readonly maxOutputTokens?: number;
  /**
   * The caller's own body, for answers that repeat parts of it (Responses) or depend on what was asked (thinking).
   * `bindingFor` remembers the body a request was built from, so that a context reused for the answer may leave it out.
   */
  readonly body?: JsonObject;
}

/**
 * How a provider serves one operation. Without `request` and `response` the bytes pass through untouched, save for a
 * spliced `model`. Transforms are pure: they never change their input and do no I/O.
 */
export interface Binding {
  /** Wire shape the provider speaks here. Differs from the operation's shape only through `operations/convert`. */
  readonly shape: Shape;
  /** Appended to the base URL; starts with `/`. */
  path(context: CallContext): string;
  /**
   * Base URL of this operation where it is not that of the provider: another plane of the same service. Not asked for
   * accounts with a custom host, which stands for all of them. Null: the provider's own.
   */
  readonly base?: (credentials: Credentials) => string | null;
  /** Headers that fields of the caller's body become, `name, value`, lower-case names. */
  readonly headers?: (body: JsonObject, context: CallContext) => readonly string[];
  /** Throws SluiceError('unsupported_parameter') for a field that cannot be expressed. */
  readonly request?: (body: JsonObject, context: CallContext) => JsonObject;
  readonly response?: (body: JsonObject, context: CallContext) => JsonObject;
  /** What a form of the caller's becomes, for a provider that takes JSON where callers send forms. */
  readonly form?: (parts: readonly FormValue[], context: CallContext) => JsonObject;
  /** Addresses of pictures and files that the provider does not read itself: what is there is fetched and sent along. */
  readonly inlines?: (url: string) => boolean;
  /** For a provider that takes or tells one thing at a time where callers ask for several: calls side by side, answered as one. */
  readonly fanOut?: FanOut;
  /** Completes an answer with what only its head tells, such as token counts, before anything else reads it. */
  readonly received?: (body: JsonObject, header: (name: string) => string | undefined) => JsonObject;
  readonly stream?: (context: CallContext) => StreamTransform;
  /**
   * The path is the provider's own, and so is its query: the caller's would mean nothing there, or be refused. Otherwise
   * the caller's query follows the path.
   */
  readonly ownQuery?: boolean;
  /** Query parameters that the path decides on: a caller's own are left out. */
  readonly ownParameters?: ReadonlySet<string>;
  /** Where an answer names the model that gave it, when that is not `model`. */
  readonly modelKey?: string;
  /** How a stream of this binding is framed. Default: server-sent events. The relay hands `stream` decoded events either way. */
  readonly framing?: Framing;
  /** Whether `stream_options: {include_usage: true}` makes this provider report usage in a stream. */
  readonly streamUsageOption?: boolean | ((context: CallContext) => boolean);
  /**
   * The provider continues an answer whose beginning is last in the conversation, as the assistant's own message.
   * Null for models that refuse one.
   */
  readonly prefill?: Prefill | ((model: string, credentials: Credentials) => Prefill | null);
  /** Reads the provider's own usage object where it differs from the shape's (`operations/usage.ts`). */
  readonly usage?: (usage: JsonObject) => TokenUsage | null;
  /**
   * Where a stream or answer keeps its usage when that is not the shape's own place, as a path of keys from the top of
   * the event: `['x_groq', 'usage']`.
   */
  readonly usagePath?: readonly string[];
  /**
   * `request` is the identity unless one of these texts, all in quotes, occurs in the bytes of the body: a relay may search
   * instead of parse. Absent: `request` must always run.
   */
  readonly requestTouches?: readonly string[];
  /**
   * The same for `response`. Events of a stream may pass as they are until the first that holds one of these texts;
   * from then on all must go through `stream`.
   */
  readonly answerTouches?: readonly string[];
  /** What a conversion into this binding's shape may write beyond, or must leave out of, the published definition. */
  readonly target?: ConvertTarget;
  /**
   * Headers of a stream are held back until its first event; when this finds an error in it, the answer becomes that
   * error with its status. Only asked when the setting named by `inspectFirstEvent.setting` is true.
   */
  readonly inspectFirstEvent?: FirstEventHook;
}

/** A part of a form; texts have no `filename`. */
export interface FormValue {
  readonly name: string;
  readonly filename: string | null;
  readonly contentType: string | null;
  readonly bytes: Buffer;
}

/** See `Binding.fanOut`. */
export interface FanOut {
  /** The caller's body once for each thing, before `request`; null where one call is enough. */
  split?(body: JsonObject, context: CallContext): readonly JsonObject[] | null;
  /** Of a list that lies in several places: the paths beside that of the binding. */
  places?(context: CallContext): readonly string[];
  /** Whether the list does without a further place that answers with this status: an account may not see all of them. */
  without?(status: number): boolean;
  /** The provider's answers, in the order of the calls, as one that `response` understands. */
  join(answers: readonly JsonObject[]): JsonObject;
}

/** Server-sent events, or binary messages of `application/vnd.amazon.eventstream`. */
export type Framing = 'sse' | 'aws-event-stream';

/** What has to be added for an answer to be continued: to its beginning, and to the body. Both may be empty. */
export interface Prefill {
  readonly message?: JsonObject;
  readonly body?: JsonObject;
  /** Where it is offered beside the usual surface: the path in place of the base URL's, `/v1`. */
  readonly prefix?: (usual: string) => string;
}

/** See `Binding.inspectFirstEvent`. */
export interface FirstEventHook {
  readonly setting: string;
  /** The error the event's data stands for, or null when the stream may begin. */
  find(data: string): ProviderError | null;
}

export type Bindings = Readonly<Partial<Record<OperationId, Binding>>>;

export interface Provider {
  readonly id: string;
  readonly title: string;
  /** Settings of its accounts, wherever they are said: on integrations and virtual keys, in configs and requests. */
  readonly account: Account;
  /** False where a call works without a provider key (self-hosted servers, sandbox). */
  readonly needsKey: boolean;
  /** Includes the version path, no trailing slash: `https://api.openai.com/v1`. Null when only a custom host can be used. */
  baseUrl(credentials: Credentials): string | null;
  /** What to tell a caller whose account has no base URL, where more than a custom host can give it one. */
  readonly hostHint?: string;
  /**
   * Where models have names of the account's own (deployments): what is sent in place of a model's name, and the settings
   * that go with it. Called once for each model of a configuration, before `baseUrl`.
   */
  readonly placeModel?: (credentials: Credentials, model: string) => PlacedModel;
  /** Pushes authentication and provider option headers, `name, value`, lower-case names. */
  authorize(headers: string[], context: CallContext): void;
  /**
   * For accounts that sign in with a token or sign each request: changes the headers of the finished request, just before
   * it is sent and again for each attempt. Null: this account needs none of it, `authorize` has done all there is. Answers
   * the secrets it put in beyond those of the credentials, so that nothing upstream can echo them.
   */
  readonly sign?: (context: CallContext) => Signer | null;
  /** Settings that others of an account imply, as the project that a key file is of: no caller may name another. */
  readonly implied?: (settings: Readonly<Record<string, unknown>>) => Readonly<Record<string, unknown>>;
  readonly bindings: Bindings;
  /**
   * Other bindings for a model or an account, where models of several makers answer in different shapes. Null: `bindings`. Tables are
   * made once, because what is found in one is remembered by its identity; `allBindings` lists them all by name.
   */
  readonly bindingsOf?: (model: string, credentials: Credentials) => Bindings | null;
  readonly allBindings?: Readonly<Record<string, Bindings>>;
  /** Set when unknown `/v1/*` paths may be passed through: the shape of its errors. */
  readonly passThrough: boolean;
  /**
   * Native paths below the base URL that neither read nor change what is kept at an account, as `POST v1/tokenize`: lower
   * case, `*` is any one segment or the begin of one. They are passed through also where several workspaces share the account.
   */
  readonly statelessPaths?: readonly string[];
  /**
   * Extracts `{message, type, param, code}` of an error body, and the status when it must change. `header` gives those of
   * the answer, where there is one, by their names in lower case.
   */
  readonly error?: (
    status: number,
    body: JsonObject | string,
    header?: (name: string) => string | undefined,
  ) => ProviderError;
  /** Its usual model of embeddings, by which a semantic cache compares questions where the config names none. */
  readonly embeddingModel?: string;
  /** Fine-tuning, files and batches; absent: 501. */
  readonly training?: TrainingAdapter;
  /** Answers inside the process instead of over a socket (sandbox). */
  readonly local?: LocalHandler;
}

/** See `Provider.placeModel`. */
export interface PlacedModel {
  readonly credentials: Credentials;
  /** Name that is sent. */
  readonly model: string;
  /** What the provider's price list calls it; null when only the answer will tell. */
  readonly priced: string | null;
}

/** See `Provider.sign`. Rejects with a SluiceError when the account cannot be signed in. */
export type Signer = (request: WireRequest, access: AccessContext) => Promise<readonly string[]>;

/** A call answered in the process. It must honour pause, resume and abort like a socket does. */
export type LocalHandler = (request: WireRequest, handler: WireHandler, clock: Clock) => WireControl;
