import type { JsonValue } from '../../kernel/json.ts';
import { type Ask, lastUserText, type Tool } from './ask.ts';
import { loremTokensIn } from './lorem.ts';
import { invalid } from './problem.ts';
import { instanceOf } from './schema.ts';
import { type Bounds, loremOf, type Text, textOf, UNBOUND } from './text.ts';

export interface Call {
  readonly tool: Tool;
  /** Twenty-four characters, different for each call and choice; the shapes put their own prefix before it. */
  readonly id: string;
  /** JSON text, or the input of a custom tool. */
  readonly input: Text;
}

export interface Reply {
  readonly thinking: Text | null;
  readonly text: Text | null;
  readonly calls: readonly Call[];
  readonly finish: 'stop' | 'length' | 'tool_calls';
  /** Sum over thinking, text and calls. */
  readonly tokens: number;
}

const LOREM_TOKENS = 100;
const QUOTE = 200;

/** The filler a fault needs to happen in, with some left over. */
function faultTokens(ask: Ask): number | null {
  const { behaviour, numbers } = ask.model;
  if (behaviour === 'cut' || behaviour === 'stall') return (numbers.after_tokens ?? 0) + 20;
  if (behaviour === 'malformed') return (numbers.event ?? 0) + 20;
  return null;
}

function plainText(ask: Ask): string {
  const asked = lastUserText(ask.turns);
  const short = asked.length > QUOTE ? `${asked.slice(0, QUOTE)}…` : asked;
  return (
    `This is the Sluice sandbox answering as ${ask.model.name}: no model was called and nothing left this process. ` +
    `You said: "${short}" Try the models echo, lorem, slow, error, cut, stall, malformed and flap to test your code.`
  );
}

function wantedTokens(ask: Ask): number | null {
  const { behaviour, numbers } = ask.model;
  if (numbers.tokens !== undefined) return numbers.tokens;
  if (numbers.bytes !== undefined) return loremTokensIn(numbers.bytes);
  return behaviour === 'lorem' ? LOREM_TOKENS : faultTokens(ask);
}

function answerText(ask: Ask): Promise<Text> {
  const tokens = wantedTokens(ask);
  if (tokens !== null) return loremOf(tokens, ask.bounds);
  const bounds: Bounds =
    ask.softLimit === null ? ask.bounds : { ...ask.bounds, limit: ask.bounds.limit ?? ask.softLimit };
  const { behaviour } = ask.model;
  return textOf(behaviour === 'echo' || behaviour === 'slow' ? lastUserText(ask.turns) : plainText(ask), bounds);
}

/** Whether `text` holds `name`, which is not empty, as a separate word. */
function mentions(text: string, name: string): boolean {
  const isWord = (c: string | undefined): boolean => c !== undefined && /[\w-]/.test(c);
  for (let at = text.indexOf(name); at !== -1; at = text.indexOf(name, at + 1)) {
    if (!isWord(text[at - 1]) && !isWord(text[at + name.length])) return true;
  }
  return false;
}

/**
 * Tools to call: the named one; else, unless the last message is a tool's result, those whose names occur in the last
 * user message, all of them when calls may be parallel; else the first.
 */
function toolsToCall(ask: Ask): readonly Tool[] {
  const { choice, tools } = ask;
  if (tools.length === 0 || choice.kind === 'none') return [];
  if (choice.kind === 'named') {
    const named = choice.names.map((name) => {
      const tool = tools.find((other) => other.name === name);
      if (tool === undefined) {
        throw invalid(`Tool choice '${name.slice(0, 100)}' not found in 'tools' parameter.`, 'tool_choice');
      }
      return tool;
    });
    return ask.parallel ? named : named.slice(0, 1);
  }
  if (choice.kind === 'auto' && ask.turns.at(-1)?.role !== 'user') return [];
  const text = lastUserText(ask.turns);
  const mentioned = tools.filter((tool) => mentions(text, tool.name));
  if (mentioned.length > 0) return ask.parallel ? mentioned : mentioned.slice(0, 1);
  return tools.slice(0, 1);
}

function json(value: JsonValue): string {
  return JSON.stringify(value);
}

/** Composes the answer of choice `index`; faults of transport are added by the shapes. */
export async function compose(ask: Ask, index: number): Promise<Reply> {
  let spent = 0;
  let thinking: Text | null = null;
  if (ask.thinking) {
    thinking = await textOf('The sandbox does not think. It picks a fixed answer for the request it was sent.', {
      limit: ask.bounds.limit,
      stops: [],
    });
    spent += thinking.tokens;
    if (thinking.truncated) return { thinking, text: null, calls: [], finish: 'length', tokens: spent };
  }
  const bounds: Bounds = {
    ...ask.bounds,
    limit: ask.bounds.limit === null ? null : Math.max(0, ask.bounds.limit - spent),
  };
  const tools = toolsToCall(ask);
  if (tools.length > 0) {
    const calls: Call[] = [];
    for (const [at, tool] of tools.entries()) {
      const id = ask.hash.slice(0, 18) + index.toString(16).padStart(2, '0') + at.toString(16).padStart(4, '0');
      const input =
        tool.kind === 'custom' ? lastUserText(ask.turns) : json(instanceOf(tool.schema, `tools[${at}].parameters`));
      const text = await textOf(input, {
        limit: bounds.limit === null ? null : Math.max(0, bounds.limit - (spent - (thinking?.tokens ?? 0))),
        stops: [],
      });
      spent += text.tokens;
      calls.push({ tool, id, input: text });
      if (text.truncated) return { thinking, text: null, calls, finish: 'length', tokens: spent };
    }
    return { thinking, text: null, calls, finish: 'tool_calls', tokens: spent };
  }
  const text = await bodyText({ ...ask, bounds });
  return { thinking, text, calls: [], finish: text.truncated ? 'length' : 'stop', tokens: spent + text.tokens };
}

function bodyText(ask: Ask): Promise<Text> {
  const { format, bounds } = ask;
  if (format.kind === 'text') return answerText(ask);
  const value: JsonValue =
    format.kind === 'json_object'
      ? { sandbox: true, model: ask.model.name, you_said: lastUserText(ask.turns) }
      : instanceOf(format.schema, 'response_format.json_schema.schema');
  return textOf(json(value), { ...UNBOUND, limit: bounds.limit });
}
