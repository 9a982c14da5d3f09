/** What the official clients make of answers and streams, without what only one of the two can say. */
import Anthropic from '@anthropic-ai/sdk';
import OpenAI from 'openai';
import { isObject, type JsonObject, type JsonValue } from '../../src/kernel/json.ts';
import { asArray, asObject } from '../../src/operations/convert/fields.ts';
import type { Caller } from './relayed.ts';

const SSE = { 'content-type': 'text/event-stream' };

/** Arguments are the same however they are written. */
const argumentsOf = (text: unknown): unknown => {
  try {
    return JSON.parse(String(text));
  } catch {
    return text;
  }
};

function chatMessage(completion: JsonObject): unknown {
  return asArray(completion.choices).map((choice) => {
    const { message, finish_reason } = asObject(choice);
    const { content, refusal, tool_calls } = asObject(message);
    const calls = asArray(tool_calls).map((call) => {
      const { id, function: called } = asObject(call);
      const { name, arguments: text } = asObject(called);
      return { id, name, arguments: argumentsOf(text) };
    });
    const tokens = asArray(asObject(asObject(choice).logprobs).content);
    return { content: content || '', refusal: refusal || null, calls, finish_reason, tokens };
  });
}

function messagesMessage({ content, stop_reason, stop_sequence, usage }: JsonObject): unknown {
  const blocks: JsonObject[] = [];
  for (const block of asArray(content)) {
    const last = blocks.at(-1);
    // Several blocks of text are one text.
    if (isObject(block) && block.type === 'text' && last?.type === 'text') last.text = `${last.text}${block.text}`;
    else if (isObject(block)) blocks.push({ ...block });
  }
  const { output_tokens } = asObject(usage);
  return { blocks, stop_reason, stop_sequence, output_tokens };
}

/** Without the ids of items, which count them differently. */
function responsesOutput({ output, status, incomplete_details, usage }: JsonObject): unknown {
  const items = asArray(output).map((item) => {
    const { id: _, parsed: _parsed, ...rest } = asObject(item) as Record<string, JsonValue>;
    const content = asArray(rest.content).map((part) => {
      const { parsed: _part, ...kept } = asObject(part) as Record<string, JsonValue>;
      return kept;
    });
    const { arguments: text, parsed_arguments: _call, ...other } = rest;
    return { ...other, content, ...(text === undefined ? null : { arguments: argumentsOf(text) }) };
  });
  return { items, status, incomplete_details, usage };
}

/** The content of an answer in one piece. */
export function readAnswer(caller: Caller, text: string): unknown {
  const body = JSON.parse(text) as JsonObject;
  if (caller === 'chat') return { message: chatMessage(body), usage: body.usage };
  return caller === 'messages' ? messagesMessage(body) : responsesOutput(body);
}

/** The content of a stream, put together by the caller's official client. */
export async function readStream(caller: Caller, text: string): Promise<unknown> {
  const fetch = async (): Promise<Response> => new Response(text, { headers: SSE });
  if (caller === 'messages') {
    const client = new Anthropic({ apiKey: 'none', fetch, maxRetries: 0 });
    const stream = client.messages.stream({ model: 'm', max_tokens: 1, messages: [] });
    return messagesMessage((await stream.finalMessage()) as unknown as JsonObject);
  }
  const client = new OpenAI({ apiKey: 'none', fetch, maxRetries: 0 });
  if (caller === 'chat') {
    const stream = client.chat.completions.stream({
      model: 'm',
      messages: [],
      stream_options: { include_usage: true },
    });
    const completion = (await stream.finalChatCompletion()) as unknown as JsonObject;
    return { message: chatMessage(completion), usage: completion.usage };
  }
  return responsesOutput(
    (await client.responses.stream({ model: 'm', input: '' }).finalResponse()) as unknown as JsonObject,
  );
}
