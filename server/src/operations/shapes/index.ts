import type { Shape } from '../row.ts';
import { chat, completions } from './chat.ts';
import { countTokens, messages } from './messages.ts';
import { responses } from './responses.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

export type { WireShape };

export const SHAPES: Readonly<Record<Shape, WireShape>> = {
  chat,
  completions,
  embeddings: { ...UNKNOWN, member: 'data' },
  messages,
  responses,
  moderations: UNKNOWN,
  images: UNKNOWN,
  speech: UNKNOWN,
  transcription: UNKNOWN,
  rerank: UNKNOWN,
  models: UNKNOWN,
  count_tokens: countTokens,
  raw: { ...UNKNOWN, dialect: null },
};
