import type { JsonObject } from '../kernel/json.ts';
import { type Conversion, underNames } from '../operations/convert/conversion.ts';
import { conversion } from '../operations/convert/index.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import { chain, type StreamTransform } from '../operations/stream.ts';
import type { Binding, Bindings, CallContext, Credentials, Prefill, Provider } from './provider.ts';

/** How one operation reaches one provider. */
export interface Bound {
  readonly binding: Binding;
  /** Between the caller's shape and the binding's; null when they are the same. */
  readonly convert: Conversion | null;
  /** Conversion and the provider's own transform in one, in the right order; absent: bytes pass. */
  readonly request?: (body: JsonObject, context: CallContext) => JsonObject;
  readonly response?: (body: JsonObject, context: CallContext) => JsonObject;
  readonly stream?: (context: CallContext) => StreamTransform;
}

/** Which of a provider's operations may replace one it lacks, best first. */
const STAND_INS: Partial<Record<OperationId, readonly OperationId[]>> = {
  chat: ['messages', 'responses'],
  messages: ['chat', 'responses'],
  responses: ['chat', 'messages'],
};

/**
 * Bodies of calls under way, by their context: an answer may depend on what was asked (`CallContext.body`), and the
 * context that comes with the answer is the one the request was built with.
 */
const asked = new WeakMap<CallContext, JsonObject>();

/** The body that the request of this context was built from, where `Bound.request` has seen it in this thread. */
export function askedOf(context: CallContext): JsonObject | undefined {
  return asked.get(context);
}

/** Says what the request of this context was built from, which was done elsewhere. */
export function rememberAsked(context: CallContext, body: JsonObject): void {
  asked.set(context, body);
}

function withBody(context: CallContext): CallContext {
  if (context.body !== undefined) return context;
  const body = asked.get(context);
  return body === undefined ? context : { ...context, body };
}

/** What a conversion is given holds everything there is: the conversion decides what its caller sees of it. */
function between(context: CallContext): CallContext {
  return { ...context, strict: false, includeUsage: true };
}

function through(binding: Binding, convert: Conversion): Bound {
  return {
    binding,
    convert,
    request(body, context) {
      asked.set(context, body);
      const converted = convert.request(body, context);
      const { request } = binding;
      return request === undefined ? converted : underNames(convert, body, () => request(converted, context));
    },
    response(body, given) {
      const context = withBody(given);
      return convert.response(binding.response ? binding.response(body, between(context)) : body, context);
    },
    stream(given) {
      const context = withBody(given);
      return binding.stream
        ? chain(binding.stream(between(context)), convert.stream(context))
        : convert.stream(context);
    },
  };
}

function native(binding: Binding): Bound {
  const { request, response, stream } = binding;
  return {
    binding,
    convert: null,
    ...(request
      ? {
          request(body: JsonObject, context: CallContext) {
            if (response || stream) asked.set(context, body);
            return request(body, context);
          },
        }
      : null),
    ...(response ? { response: (body: JsonObject, context: CallContext) => response(body, withBody(context)) } : null),
    ...(stream ? { stream: (context: CallContext) => stream(withBody(context)) } : null),
  };
}

function find(bindings: Bindings, operation: OperationId): Bound | null {
  const own = bindings[operation];
  if (own !== undefined) return native(own);
  const { shape } = OPERATIONS[operation];
  for (const other of STAND_INS[operation] ?? []) {
    const binding = bindings[other];
    if (binding === undefined) continue;
    const convert = conversion(shape, binding.shape, {
      ...binding.target,
      ...(binding.usage ? { usage: binding.usage } : null),
      ...(binding.usagePath ? { usagePath: binding.usagePath } : null),
      ...(binding.streamUsageOption ? null : { omit: new Set([...(binding.target?.omit ?? []), 'stream_options']) }),
    });
    if (convert !== null) return through(binding, convert);
  }
  return null;
}

/** How `model` is made to continue an answer that was begun; null when it takes none. */
export function prefillOf({ prefill }: Binding, model: string, credentials: Credentials): Prefill | null {
  return typeof prefill === 'function' ? prefill(model, credentials) : (prefill ?? null);
}

const NO_CREDENTIALS: Credentials = { key: null, settings: {} };

const found = new WeakMap<Bindings, Map<OperationId, Bound | null>>();

/**
 * How `provider` serves `operation` with `model`: its own binding, else one it has for another shape with a conversion in
 * between, else null (answer `unsupported_operation`, call nothing). Answers are kept per table of bindings and operation.
 */
export function bindingFor(
  provider: Provider,
  operation: OperationId,
  model = '',
  credentials: Credentials = NO_CREDENTIALS,
): Bound | null {
  const bindings = provider.bindingsOf?.(model, credentials) ?? provider.bindings;
  let known = found.get(bindings);
  if (known === undefined) {
    known = new Map();
    found.set(bindings, known);
  }
  let bound = known.get(operation);
  if (bound === undefined) {
    bound = find(bindings, operation);
    known.set(operation, bound);
  }
  return bound;
}
