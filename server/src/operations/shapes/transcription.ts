/** Speech that is written down. */
import type { JsonObject } from '../../kernel/json.ts';
import { type Assembler, member, OutOfPlace, type Region } from './assembler.ts';
import { unknownUse } from './estimate.ts';
import { readOnlyUsage } from './responses/usage.ts';
import { UNKNOWN, type WireShape } from './wire-shape.ts';

/** Of a transcription: pieces of its text, then all of it. Parts by speaker are not followed. */
class TranscriptAssembler implements Assembler {
  readonly sketch: JsonObject = { text: '' };

  take(event: JsonObject): Region[] {
    const { type, delta, text } = event;
    if (type === 'transcript.text.delta' && typeof delta === 'string') {
      this.sketch.text = `${String(this.sketch.text)}${delta}`;
      return [member(event, 'delta', 'text', '', true)];
    }
    if (type === 'transcript.text.done' && typeof text === 'string') {
      this.sketch.text = text;
      return [member(event, 'text', 'text', '', false)];
    }
    throw new OutOfPlace();
  }

  answer(): JsonObject {
    return this.sketch;
  }
}

export const transcription: WireShape = {
  ...UNKNOWN,
  usage: readOnlyUsage,
  estimate: unknownUse,
  conversations: [],
  answersSay: true,
  holdsMedia: true,
  answersPlainly: true,
  assembler: () => new TranscriptAssembler(),
};
