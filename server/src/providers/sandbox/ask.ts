import { isObject, type JsonObject } from '../../kernel/json.ts';
import { countTokens } from '../../operations/tokens.ts';
import type { SandboxModel } from './model.ts';
import type { Bounds } from './text.ts';

/** One message as far as the sandbox looks at it. */
export interface Turn {
  readonly role: string;
  /** Texts of its parts, in order. */
  readonly texts: readonly string[];
  /** Parts that are no text (images, audio, files), by kind. */
  readonly media: readonly string[];
  readonly name?: string;
}

export interface Tool {
  readonly name: string;
  /** `custom` tools take free text. */
  readonly kind: 'function' | 'custom';
  readonly schema: JsonObject;
}

export type Choice =
  | { readonly kind: 'auto' | 'none' | 'required' }
  | { readonly kind: 'named'; readonly names: readonly string[] };

export type Format =
  | { readonly kind: 'text' }
  | { readonly kind: 'json_object' }
  | { readonly kind: 'json_schema'; readonly schema: JsonObject };

/** What a generating request asks for, whatever its wire shape. */
export interface Ask {
  readonly model: SandboxModel;
  readonly turns: readonly Turn[];
  readonly tools: readonly Tool[];
  readonly choice: Choice;
  readonly parallel: boolean;
  readonly format: Format;
  readonly bounds: Bounds;
  /** Token limit that holds only when the model name does not say how long the answer is. */
  readonly softLimit: number | null;
  readonly choices: number;
  readonly thinking: boolean;
  readonly stream: boolean;
  /** Hexadecimal hash of the request body; ids come from it. */
  readonly hash: string;
}

/** What one image costs in the count of a prompt: OpenAI's price of a low-detail image. */
const MEDIA_TOKENS = 85;

/**
 * Tokens of a prompt: three for each message beside its role, name and texts, three that open the answer, the tools as
 * JSON, and 85 for every image or file.
 */
export async function promptTokens(turns: readonly Turn[], tools: unknown): Promise<number> {
  let sum = 3;
  for (const turn of turns) {
    sum += 3 + (await countTokens(turn.role)) + MEDIA_TOKENS * turn.media.length;
    for (const text of turn.texts) sum += await countTokens(text);
    if (turn.name !== undefined) sum += 1 + (await countTokens(turn.name));
  }
  if (tools !== undefined && !(Array.isArray(tools) && tools.length === 0)) {
    sum += await countTokens(JSON.stringify(tools));
  }
  return sum;
}

/** What the last user message says; images and files in brackets. */
export function lastUserText(turns: readonly Turn[]): string {
  const last = turns.findLast((turn) => turn.role === 'user') ?? turns.at(-1);
  if (last === undefined) return '';
  return [...last.texts, ...last.media.map((kind) => `[${kind}]`)].join('\n');
}

export function schemaOf(value: unknown): JsonObject {
  return isObject(value) ? value : { type: 'object', properties: {} };
}
