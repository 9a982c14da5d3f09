/** Every wire shape, one object each. Adding one is a file here, or a folder, and a line in this table. */
import { chat, completions } from './chat/index.ts';
import { embeddings } from './embeddings.ts';
import { images } from './images.ts';
import { countTokens, messages } from './messages/index.ts';
import { models } from './models.ts';
import { moderations } from './moderations.ts';
import { raw } from './raw.ts';
import { rerank } from './rerank.ts';
import { responses } from './responses/index.ts';
import { speech } from './speech.ts';
import { transcription } from './transcription.ts';
import type { WireShape } from './wire-shape.ts';

export type { WireShape };

const TABLE = {
  chat,
  completions,
  embeddings,
  messages,
  responses,
  moderations,
  images,
  speech,
  transcription,
  rerank,
  models,
  count_tokens: countTokens,
  raw,
} satisfies Readonly<Record<string, WireShape>>;

/**
 * The wire shape of a body and its answer. Two equal shapes mean bytes pass through; different ones meet in
 * `operations/convert`.
 */
export type Shape = keyof typeof TABLE;

export const SHAPES: Readonly<Record<Shape, WireShape>> = TABLE;
