import type { JsonObject } from '../kernel/json.ts';
import type { ConvertTarget } from '../operations/convert/conversion.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import type { TokenUsage } from '../operations/usage.ts';
import { type AccountFields, account } from './account.ts';
import { operationPath } from './path.ts';
import type { Binding, CallContext, Credentials, Provider } from './provider.ts';
import {
  type AnswerQuirk,
  ChunkTransform,
  callIndexRepair,
  developerAsSystem,
  type RequestQuirk,
  rename,
} from './quirks.ts';

/** How a provider's chat completions differ from the published definition. Nothing given: bytes pass. */
export interface ChatQuirks {
  /** The provider knows `max_completion_tokens`; others get `max_tokens`. */
  readonly maxCompletionTokens?: boolean;
  /** The provider knows the role `developer`; others get `system`. */
  readonly developerRole?: boolean;
  /** Applied in order, before the two defaults above. */
  readonly request?: readonly RequestQuirk[];
  readonly answer?: readonly AnswerQuirk[];
  /** Streamed calls come with a missing or wrong index. */
  readonly repairCallIndex?: boolean;
  /** `stream_options.include_usage` is known. Default true. */
  readonly streamUsageOption?: boolean;
  readonly usage?: (usage: JsonObject) => TokenUsage | null;
  readonly usagePath?: readonly string[];
  /** Chat fields beyond the definition that a conversion may write (`top_k`). */
  readonly extensions?: readonly string[];
  /** Bookkeeping fields a conversion leaves out. */
  readonly omit?: readonly string[];
  readonly reasoning?: ConvertTarget['reasoning'];
}

/** One row of the catalog of OpenAI-compatible providers. */
export interface CompatibleRow {
  readonly id: string;
  readonly title: string;
  /** With version path, no trailing slash; null when only a custom host can be used. */
  readonly baseUrl: string | null | ((credentials: Credentials) => string | null);
  /** Default true. */
  readonly needsKey?: boolean;
  readonly settings?: AccountFields;
  /** Option headers, after the bearer key. */
  readonly headers?: (headers: string[], context: CallContext) => void;
  /** Path between base URL and operation paths, for vendors whose other APIs live beside the compatible one. */
  readonly prefix?: string;
  /** Operations served under their own path with bytes passing. `chat`, `models`, `model` are served unless `chat` is false. */
  readonly serves?: readonly OperationId[];
  readonly chat?: ChatQuirks | false;
  /** Bindings that differ from the plain one, or operations under another path. */
  readonly bindings?: Partial<Record<OperationId, Partial<Binding>>>;
  readonly statelessPaths?: Provider['statelessPaths'];
  readonly error?: Provider['error'];
  readonly training?: Provider['training'];
}

/** Runs request quirks in order; the argument itself comes back when none applied. */
export function requestOf(quirks: readonly RequestQuirk[]): Pick<Binding, 'request' | 'requestTouches'> {
  if (quirks.length === 0) return {};
  return {
    request: (body, context) => quirks.reduce((current, quirk) => quirk.apply(current, context), body),
    requestTouches: [...new Set(quirks.flatMap((quirk) => quirk.touches))],
  };
}

/** Runs answer quirks on whole answers and on chunks. */
export function answerOf(
  quirks: readonly AnswerQuirk[],
  repairCallIndex = false,
): Pick<Binding, 'response' | 'stream' | 'answerTouches'> {
  const all = (body: JsonObject): JsonObject => quirks.reduce((current, quirk) => quirk.apply(current), body);
  const touches = [...new Set(quirks.flatMap((quirk) => quirk.touches))];
  if (repairCallIndex) {
    return {
      ...(quirks.length > 0 ? { response: all } : null),
      stream: () => {
        const repair = callIndexRepair();
        return new ChunkTransform((chunk) => all(repair(chunk)));
      },
      answerTouches: [...touches, '"tool_calls"'],
    };
  }
  if (quirks.length === 0) return {};
  return { response: all, stream: () => new ChunkTransform(all), answerTouches: touches };
}

function targetOf(quirks: ChatQuirks): ConvertTarget {
  return {
    ...(quirks.extensions ? { extensions: new Set(quirks.extensions) } : null),
    ...(quirks.omit ? { omit: new Set(quirks.omit) } : null),
    ...(quirks.reasoning ? { reasoning: quirks.reasoning } : null),
  };
}

function chatBinding(quirks: ChatQuirks): Binding {
  const request = [...(quirks.request ?? [])];
  if (!quirks.developerRole) request.push(developerAsSystem);
  if (!quirks.maxCompletionTokens) request.push(rename('max_completion_tokens', 'max_tokens'));
  return {
    shape: 'chat',
    path: operationPath('chat'),
    ...requestOf(request),
    ...answerOf(quirks.answer ?? [], quirks.repairCallIndex),
    streamUsageOption: quirks.streamUsageOption ?? true,
    ...(quirks.usage ? { usage: quirks.usage } : null),
    ...(quirks.usagePath ? { usagePath: quirks.usagePath } : null),
    target: targetOf(quirks),
  };
}

/** The binding of an operation whose bytes pass. */
export function plainBinding(operation: OperationId): Binding {
  return { shape: OPERATIONS[operation].shape, path: operationPath(operation) };
}

/** Sends the provider key as a bearer token. */
export function bearer(headers: string[], context: Pick<CallContext, 'credentials'>): void {
  const { key } = context.credentials;
  if (key !== null) headers.push('authorization', `Bearer ${key.reveal()}`);
}

function bindingsOf(row: CompatibleRow): Partial<Record<OperationId, Binding>> {
  const chat = row.chat ?? {};
  const bindings: Partial<Record<OperationId, Binding>> = {};
  if (chat !== false) {
    bindings.chat = chatBinding(chat);
    for (const operation of ['models', 'model'] as const) bindings[operation] = plainBinding(operation);
  }
  for (const operation of ['proxy' as const, ...(row.serves ?? [])]) bindings[operation] = plainBinding(operation);
  const { prefix } = row;
  if (prefix !== undefined) {
    for (const [operation, binding] of Object.entries(bindings) as [OperationId, Binding][]) {
      const { path } = binding;
      bindings[operation] = { ...binding, path: (context) => prefix + path(context) };
    }
  }
  for (const operation of Object.keys(row.bindings ?? {}) as OperationId[]) {
    bindings[operation] = { ...(bindings[operation] ?? plainBinding(operation)), ...row.bindings?.[operation] };
  }
  return bindings;
}

/** Builds a provider from its row. */
export function compatible(row: CompatibleRow): Provider {
  const { baseUrl } = row;
  return {
    id: row.id,
    title: row.title,
    account: account(row.settings),
    needsKey: row.needsKey ?? true,
    baseUrl: typeof baseUrl === 'function' ? baseUrl : () => baseUrl,
    authorize(headers, context) {
      bearer(headers, context);
      row.headers?.(headers, context);
    },
    bindings: bindingsOf(row),
    passThrough: true,
    ...(row.statelessPaths ? { statelessPaths: row.statelessPaths } : null),
    ...(row.error ? { error: row.error } : null),
    ...(row.training ? { training: row.training } : null),
  };
}
