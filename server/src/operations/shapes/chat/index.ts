/** Chat completions, and completions of text, which have the same frame. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import { writtenUse } from '../estimate.ts';
import { ofChat, ofPrompt } from '../similar.ts';
import { FILTERED, isSaid, UNKNOWN, type WireShape } from '../wire-shape.ts';
import { chatAnswer, completionAnswer, resultsChunk } from './answer.ts';
import { ChatAssembler } from './assembler.ts';
import { chatResume } from './resume.ts';
import { chatUsage } from './usage.ts';

/** Fields of a chat delta that stand for themselves and are no content. */
const FRAME: ReadonlySet<string> = new Set(['role']);

/** Whether a chat or text chunk says anything: text, reasoning, a refusal, a tool call, sound. */
function says({ choices }: JsonObject): boolean {
  if (!Array.isArray(choices)) return false;
  return choices.some((choice) => {
    if (!isObject(choice)) return false;
    if (isSaid(choice.text)) return true;
    const { delta } = choice;
    return isObject(delta) && Object.entries(delta).some(([name, value]) => !FRAME.has(name) && isSaid(value));
  });
}

export const chat: WireShape = {
  ...UNKNOWN,
  knowsEvents: true,
  member: 'choices',
  says,
  isFiltered: ({ choices }) =>
    Array.isArray(choices) && choices.some((choice) => isObject(choice) && FILTERED.has(choice.finish_reason)),
  tellsEnd: ({ choices }) =>
    Array.isArray(choices) && choices.some((choice) => isObject(choice) && isSaid(choice.finish_reason)),
  resume: chatResume,
  similar: ofChat,
  usage: chatUsage,
  estimate: writtenUse,
  conversations: ['messages'],
  hasCallExtras: true,
  answersSay: true,
  holdsMedia: false,
  answersPlainly: false,
  assembler: () => new ChatAssembler(),
  results: { event: (head, results) => resultsChunk(head, 'chat.completion.chunk', results) },
  answerOf: chatAnswer,
};

export const completions: WireShape = {
  ...chat,
  resume: null,
  similar: ofPrompt,
  conversations: [],
  hasCallExtras: false,
  results: { event: (head, results) => resultsChunk(head, 'text_completion', results) },
  answerOf: completionAnswer,
};
