import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import type { Shape } from '../operation.ts';
import { chain, type StreamTransform } from '../stream.ts';
import type { TokenUsage } from '../usage.ts';

/** What a conversion may know about a call; `CallContext` of the providers fits. */
export interface ConvertContext {
  /** Model as the provider knows it. */
  readonly model: string;
  readonly stream: boolean;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** False shows thinking and native stop reasons to chat callers. Default true. */
  readonly strict?: boolean;
  /** Whether a chat caller asked for the usage chunk of a stream; by default, what `body` says. */
  readonly includeUsage?: boolean;
  /** Largest answer of the model in tokens, where known. */
  readonly maxOutputTokens?: number;
  /** The caller's own body. */
  readonly body?: JsonObject;
}

/** What a Claude model understands of the newer request fields. */
export interface MessagesTraits {
  /** `output_config.effort`; older models take a thinking budget. */
  readonly effort: boolean;
  /** `output_config.format`; older models are made to call one function. */
  readonly structuredOutput: boolean;
  /** Largest `max_tokens`, null when unknown. */
  readonly maxOutputTokens: number | null;
}

/** How a provider's side of a conversion differs from the published definition of its shape. All of it is data. */
export interface ConvertTarget {
  /**
   * Fields beyond the published definition that the provider knows, such as `top_k` in chat, `thinking` (an object as in
   * Messages) or `extra_content` of calls.
   */
  readonly extensions?: ReadonlySet<string>;
  /** Bookkeeping fields the provider does not know: a conversion leaves them out. */
  readonly omit?: ReadonlySet<string>;
  /** Message and delta field in which the provider gives, and where `history` is true also takes, reasoning text. */
  readonly reasoning?: { readonly field: string; readonly history?: boolean };
  /** Messages and deltas carry reasoning items of Responses in `content_blocks`, and history takes them back. */
  readonly reasoningItems?: boolean;
  readonly traits?: (model: string) => MessagesTraits;
  /** Type of the tool by which a model of Responses searches the web. Default `web_search`. */
  readonly searchTool?: (model: string) => string;
  /** Reads the provider's own usage object. */
  readonly usage?: (usage: JsonObject) => TokenUsage | null;
  /** Place of the usage object when it is not at `usage`. */
  readonly usagePath?: readonly string[];
}

/**
 * Serves callers of one shape with a provider of another. Pure: nothing given is changed. `request` throws
 * `unsupported_parameter` for an output-affecting field without equivalent and `invalid_request` for a body
 * that is wrong in itself; `response` throws `upstream_invalid`; streams never throw, they end in an error event.
 */
export interface Conversion {
  /** How the caller of `body` knows a field of what `request` makes of it; null where the name is the same. */
  nameOf?(field: string, body: JsonObject): string | null;
  /** Caller's body to provider's body. */
  request(body: JsonObject, context: ConvertContext): JsonObject;
  /** Provider's answer to caller's answer. */
  response(body: JsonObject, context: ConvertContext): JsonObject;
  /** Provider's events to caller's events. */
  stream(context: ConvertContext): StreamTransform;
}

/**
 * Runs what judges a converted body. A field it refuses is named as the caller knows it: `drop_params` is of the caller's body.
 */
export function underNames<T>(convert: Conversion, body: JsonObject, run: () => T): T {
  try {
    return run();
  } catch (error) {
    if (!(error instanceof SluiceError) || error.param === null) throw error;
    const [field = ''] = error.param.split(/[.[]/, 1);
    const name = convert.nameOf?.(field, body) ?? null;
    if (name === null) throw error;
    throw error.reworded(error.message.replace(`"${error.param}"`, `"${name}"`), { param: name });
  }
}

/** `outer` faces the caller, `inner` the provider. In between everything is shown: `outer` decides what the caller sees. */
export function compose(outer: Conversion, inner: Conversion): Conversion {
  const between = (context: ConvertContext): ConvertContext => ({ ...context, strict: false, includeUsage: true });
  return {
    nameOf: (field, body) => outer.nameOf?.(field, body) ?? null,
    request(body, context) {
      const made = outer.request(body, context);
      return underNames(outer, body, () => inner.request(made, between(context)));
    },
    response: (body, context) => outer.response(inner.response(body, between(context)), context),
    stream: (context) => chain(inner.stream(between(context)), outer.stream(context)),
  };
}

export type ConversionFactory = (target: ConvertTarget) => Conversion;
export type ConversionTable = Partial<Record<Shape, Partial<Record<Shape, ConversionFactory>>>>;
