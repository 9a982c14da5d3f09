import { invalid } from './problem.ts';

/**
 * Behaviours of the sandbox, chosen by model name with parameters in query style: `slow?ttft_ms=200&tokens_per_s=10`.
 * Any other name is a plain model. A leading `sandbox/` is ignored.
 */

interface Parameter {
  readonly min: number;
  readonly max: number;
  /** Absent: the parameter has no value unless given. */
  readonly fallback?: number;
}

const ms = (fallback?: number): Parameter => ({
  min: 0,
  max: 3_600_000,
  ...(fallback === undefined ? null : { fallback }),
});
const TTFT = ms();
const RATE: Parameter = { min: 0.1, max: 1_000_000 };

/** Longest generated text. One answer of this size is for load tests: it is made as it is read, in flat memory. */
const MAX_LOREM_BYTES = 268_435_456;
const MAX_LOREM_TOKENS = 1_000_000;

export const BEHAVIOURS = {
  /** Says back the last user message. */
  echo: { ttft_ms: TTFT, tokens_per_s: RATE },
  /** Filler text of an exact length. */
  lorem: {
    tokens: { min: 1, max: MAX_LOREM_TOKENS },
    bytes: { min: 1, max: MAX_LOREM_BYTES },
    ttft_ms: TTFT,
    tokens_per_s: RATE,
  },
  /** Answers after `ttft_ms` and streams at `tokens_per_s`. */
  slow: {
    ttft_ms: ms(500),
    tokens_per_s: { ...RATE, fallback: 20 },
    tokens: { min: 1, max: MAX_LOREM_TOKENS },
  },
  /** Fails with `status`; with `times` only the first so many calls of an organisation, counted by model text and `id`. */
  error: {
    status: { min: 400, max: 599, fallback: 500 },
    retry_after: { min: 0, max: 86_400 },
    times: { min: 1, max: 1_000_000 },
    ttft_ms: TTFT,
  },
  /** Breaks off: `mode=error` as a broken connection, `mode=end` as a clean end without the end marker. */
  cut: { after_tokens: { min: 0, max: 100_000, fallback: 40 } },
  /** Goes silent for `ms` in mid-answer, then ends properly. */
  stall: { after_tokens: { min: 0, max: 100_000, fallback: 20 }, ms: ms(30_000) },
  /** Sends broken JSON as the `event`-th event of a stream, or as the body. */
  malformed: { event: { min: 1, max: 100_000, fallback: 10 } },
  /** Works for `up_ms`, then answers `status` for `down_ms`, and so on by the clock. */
  flap: {
    down_ms: { min: 1, max: 86_400_000, fallback: 60_000 },
    up_ms: { min: 1, max: 86_400_000 },
    status: { min: 400, max: 599, fallback: 503 },
  },
} as const satisfies Record<string, Record<string, Parameter>>;

export type Behaviour = keyof typeof BEHAVIOURS;

/** Parameters that are words. */
const WORDS: Readonly<Record<string, Readonly<Record<string, RegExp>>>> = {
  cut: { mode: /^(error|end)$/ },
  error: { id: /^[\w.-]{1,64}$/ },
};

export interface SandboxModel {
  /** As the caller wrote it, without `sandbox/`; repeated in answers. */
  readonly name: string;
  /** Null for a plain model. */
  readonly behaviour: Behaviour | null;
  /** Given values and defaults; undefined where neither exists. */
  readonly numbers: Readonly<Record<string, number | undefined>>;
  readonly words: Readonly<Record<string, string | undefined>>;
}

const WHOLE = new Set([
  'tokens',
  'bytes',
  'status',
  'retry_after',
  'times',
  'after_tokens',
  'event',
  'ttft_ms',
  'ms',
  'down_ms',
  'up_ms',
]);

/** A tuned model or one of its checkpoints, as the sandbox's own jobs name them: `ft:<base>:<suffix>:<id>`. */
const TUNED = /^ft:(.+):[\w.-]{0,64}:[0-9a-z]{8}(?::ckpt-step-\d{1,15})?$/s;

/** The base of a tuned model; any other name is its own base. */
export function baseOf(name: string): string {
  return TUNED.exec(name)?.[1] ?? name;
}

/**
 * Reads a model name. Throws a 400 that names the parameter at fault and what is allowed.
 *
 * A tuned model answers as its base. Whether a job made it is not asked: the sandbox answers any name to anyone, a tuned
 * name holds nothing but its base, and so there is nothing of another workspace to be seen.
 */
export function parseModelName(text: string): SandboxModel {
  const name = text.startsWith('sandbox/') ? text.slice('sandbox/'.length) : text;
  const base = baseOf(name);
  return base === name ? parseBase(name) : { ...parseBase(base), name };
}

function parseBase(name: string): SandboxModel {
  if (name === '') throw invalid('you must provide a model parameter', 'model', 'missing_required_parameter');
  const mark = name.indexOf('?');
  const base = mark === -1 ? name : name.slice(0, mark);
  if (!Object.hasOwn(BEHAVIOURS, base)) return { name, behaviour: null, numbers: {}, words: {} };
  const behaviour = base as Behaviour;
  const known: Readonly<Record<string, Parameter>> = BEHAVIOURS[behaviour];
  const words = WORDS[behaviour] ?? {};
  const numbers: Record<string, number | undefined> = {};
  const texts: Record<string, string> = {};
  for (const [key, parameter] of Object.entries(known)) numbers[key] = parameter.fallback;
  const seen = new Set<string>();
  for (const [key, value] of mark === -1 ? [] : new URLSearchParams(name.slice(mark + 1))) {
    if (seen.has(key))
      throw invalid(`Sandbox model ${base}: the parameter ${key} is given twice.`, 'model', 'invalid_value');
    seen.add(key);
    const word = Object.hasOwn(words, key) ? words[key] : undefined;
    if (word !== undefined) {
      if (!word.test(value)) {
        const wanted = key === 'mode' ? 'error or end' : '1 to 64 letters, digits, dots, dashes or underscores';
        throw invalid(`Sandbox model ${base}: ${key} must be ${wanted}.`, 'model', 'invalid_value');
      }
      texts[key] = value;
      continue;
    }
    const parameter = Object.hasOwn(known, key) ? known[key] : undefined;
    if (parameter === undefined) {
      const list = [...Object.keys(known), ...Object.keys(words)].join(', ');
      throw invalid(
        `Sandbox model ${base}: unknown parameter ${JSON.stringify(key.slice(0, 40))}; it knows ${list}.`,
        'model',
        'invalid_value',
      );
    }
    const number = /^\d{1,12}(\.\d{1,6})?$/.test(value) ? Number(value) : Number.NaN;
    if (!(number >= parameter.min && number <= parameter.max) || (WHOLE.has(key) && !Number.isInteger(number))) {
      const kind = WHOLE.has(key) ? 'a whole number' : 'a number';
      throw invalid(
        `Sandbox model ${base}: ${key} must be ${kind} from ${parameter.min} to ${parameter.max}.`,
        'model',
        'invalid_value',
      );
    }
    numbers[key] = number;
  }
  if (numbers.tokens !== undefined && numbers.bytes !== undefined) {
    throw invalid(`Sandbox model ${base}: give tokens or bytes, not both.`, 'model', 'invalid_value');
  }
  return { name, behaviour, numbers, words: texts };
}
