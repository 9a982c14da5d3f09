import { z } from 'zod';
import { asSent, canonicalText } from '../canonical.ts';
import type { Excerpt, Judgement } from '../check.ts';
import { ANY_TARGET, BOTH, check, paced } from './support.ts';

/** A sign of an injection, over text in lower case with one space between words. Each pattern is linear and bounded. */
interface Sign {
  readonly kind: string;
  /** 0..1; the verdict falls at a sum. */
  readonly weight: number;
  readonly pattern: RegExp;
}

const SIGNS: readonly Sign[] = [
  {
    kind: 'override of instructions',
    weight: 1,
    pattern:
      /\b(?:ignore|disregard|forget|override|bypass|skip|drop|discard|neglect|do not (?:follow|obey)|don'?t (?:follow|obey)|stop following)\b(?: (?:\w{1,12}|“|")){0,4} (?:previous|prior|above|earlier|preceding|initial|original|system|existing|former|foregoing|all|any|your|other)\b(?: \w{1,12}){0,3} (?:instructions?|prompts?|directions?|guidelines?|rules?|directives?|commands?|training|programming|constraints?|restrictions?|messages?|context|policies|policy|orders?)\b/,
  },
  {
    kind: 'override of instructions',
    weight: 1,
    pattern:
      /\b(?:ignore|disregard|forget) (?:everything|all|anything|what) (?:\w{1,12} ){0,4}(?:above|before|said|told|learned|written|instructed)\b/,
  },
  {
    kind: 'override of instructions',
    weight: 1,
    pattern:
      /\b(?:ignorier|vergiss|missachte)\w{0,4}\b(?: \S{1,16}){0,4} (?:anweisung|anweisungen|regeln|vorgaben|befehle)\b|\b(?:ignor(?:e[sz]?|a|ez|are)|oublie[sz]?|olvida|dimentica|esque[cç]a|omite|descarta)\b(?: \S{1,16}){0,4} (?:instructions?|consignes|r[eè]gles|instrucciones|reglas|istruzioni|regole|instru[cç][oõ]es|regras)\b|(?:игнорируй|забудь|отмени)\S{0,4}(?: \S{1,16}){0,4} (?:инструкци|указани|правил)|(?:忽略|无视|忘记|忘掉).{0,12}(?:指令|指示|提示|规则|说明)|(?:無視|忘れ).{0,4}(?:して|て)|(?:指示|命令|プロンプト).{0,6}(?:無視|忘れ)|(?:이전|위의|모든).{0,8}(?:지시|명령|규칙).{0,6}(?:무시|잊)/,
  },
  {
    kind: 'new instructions',
    weight: 0.6,
    pattern:
      /\b(?:new|updated|real|actual|true) (?:system )?(?:instructions?|directives?|task|prompt|rules)(?: \w{1,12}){0,2} ?(?::|are|is|follow|-)|\b(?:from now on|starting now|henceforth)\b[, ]{1,2}(?:you (?:are|will|must|shall|should|can)|respond|answer|act|ignore|only)\b/,
  },
  {
    kind: 'asks for the system prompt',
    weight: 1,
    pattern:
      /\b(?:reveal|show|print|repeat|output|display|disclose|leak|dump|tell me|give me|share|expose|recite|write out|copy|paste|translate|summari[sz]e|encode|what (?:is|are|was|were))\b(?: (?:\w{1,12}|")){0,5} (?:your|the|its|this) (?:\w{1,12} ){0,2}(?:system|hidden|initial|secret|original|internal|developer|confidential|pre-?) ?(?:prompt|instructions?|message|rules|guidelines|directives?|configuration)\b/,
  },
  {
    kind: 'asks for the text above',
    weight: 1,
    pattern:
      /\b(?:repeat|print|output|copy|recite|return|reproduce)\b(?: \w{1,12}){0,4} (?:words|text|everything|all|instructions?|lines?|content|conversation|messages?) (?:above|before this|preceding|prior to)\b|\b(?:repeat|print|output) (?:\w{1,12} ){0,3}verbatim\b.{0,60}\b(?:prompt|instructions?|above)\b/,
  },
  {
    kind: 'other persona',
    weight: 1,
    pattern:
      /\b(?:you are (?:now )?|act as |become |pretend (?:to be |you are )|roleplay as |simulate |enter |activate |enable |switch to )(?:\w{1,12} ){0,3}(?:dan\b|stan\b|dude\b|aim\b|jailbroken|jailbreak|unrestricted|unfiltered|uncensored|evil|developer mode|god mode|debug mode|admin(?:istrator)? mode|sudo mode|maintenance mode|opposite mode|do anything now)/,
  },
  {
    kind: 'other persona',
    weight: 0.9,
    pattern: /\bdo anything now\b|\bjailbreak(?:ed|ing)? (?:mode|prompt|yourself|successful)\b|\bdan mode\b/,
  },
  {
    kind: 'without restrictions',
    weight: 0.7,
    pattern:
      /\b(?:without|no|free (?:of|from)|not bound by|no longer (?:bound|restricted|limited)|remove|lift|disable|turn off|bypass|break free (?:of|from)|ignoring) (?:\w{1,12} ){0,3}(?:ethical|moral|safety|content|openai|anthropic|ai|policy|censorship|security) ?(?:\w{1,14} ){0,2}(?:restrictions?|guidelines?|filters?|limits?|limitations?|constraints?|rules|polic(?:y|ies)|guardrails?|protocols?|checks|measures)\b/,
  },
  {
    kind: 'without refusal',
    weight: 0.5,
    pattern:
      /\b(?:never|do not|don'?t|cannot|can'?t|must not) (?:refuse|decline|warn|say (?:you|that you) (?:can'?t|cannot)|add (?:any )?(?:disclaimers?|warnings?)|mention (?:that )?you are an? ai|apologi[sz]e)\b|\bno (?:refusals?|disclaimers?|warnings?)\b/,
  },
  {
    kind: 'forged turn',
    weight: 0.9,
    pattern:
      /<\|?(?:im_start|im_end|system|endoftext|start_header_id|eot_id|assistant)\|?>|\[\/?inst\]|<<\/?sys>>|(?:^|\n) ?#{2,4} ?(?:system|instruction|new instructions?|admin|override)\b ?:?|\[(?:system|admin|developer)(?: (?:message|override|note|prompt))?\]|<\/?(?:system|admin|developer)(?:[_ -](?:prompt|message|note|override|instructions?))?>|\b(?:end|begin|start) of (?:the )?(?:system|user) (?:prompt|message|input|instructions?)\b/,
  },
  {
    kind: 'forged turn',
    weight: 0.6,
    pattern: /(?:^|\n) ?(?:system|developer|admin)(?: (?:message|override|prompt|note|update))? ?: ?\S/,
  },
  {
    kind: 'talks to the model',
    weight: 0.8,
    pattern:
      /\b(?:attention|important|note|message|instructions?|hey|dear|hello)\b[ ,:!-]{0,3}(?:to |for )?(?:the |any |all )?(?:ai|llms?|language models?|chat ?bots?|assistants?|agents?|gpt|claude|gemini|copilot)\b(?: (?:reading|processing|that|who|summari[sz]ing|reviewing|systems?|agents?|models?|assistants?)\b|[ ,:!-]{1,3}(?:you must|please|ignore|do not|if you|when|send|include|before|instead))/,
  },
  {
    kind: 'sends data away',
    weight: 0.8,
    pattern:
      /\b(?:send|post|forward|exfiltrate|upload|transmit|leak|email|append|embed)\b(?: \S{1,16}){0,8} (?:conversation|chat history|api keys?|passwords?|credentials?|secrets?|tokens?|system prompt|user data|environment variables|private (?:data|information|messages))\b(?: \S{1,16}){0,6} (?:https?:|to (?:http|the url|this url|this address|the following|attacker|[\w.]{1,40}@))/,
  },
  {
    kind: 'sends data away',
    weight: 0.8,
    pattern: /!\[[^\]\n]{0,80}\]\(https?:\/\/[^\s)]{1,200}[?&]\w{1,20}=(?:\{|\[|<|%7b|\$)/,
  },
  {
    kind: 'acts behind the user',
    weight: 0.8,
    pattern:
      /\b(?:do not|don'?t|never|without) (?:tell|inform|telling|informing|mention|mentioning|reveal|notify|notifying|alert|alerting)(?: \w{1,12}){0,3} (?:the )?(?:user|human|operator|owner|customer)s?\b|\b(?:secretly|silently|covertly|quietly) (?:\w{1,12} ){0,2}(?:send|call|execute|run|delete|forward|add|include|email|invoke|transfer)\b/,
  },
  {
    kind: 'claims authority',
    weight: 0.5,
    pattern:
      /\b(?:i am|i'm|this is|as) (?:\w{1,12} ){0,2}(?:your (?:developer|creator|administrator|admin|programmer|owner)|an? (?:openai|anthropic|google) (?:employee|engineer|developer|administrator)|the (?:system )?administrator|openai|anthropic)\b|\b(?:authorized|authorised) (?:override|by (?:openai|anthropic|the admin))|\boverride code\b/,
  },
  {
    kind: 'hypothetical frame',
    weight: 0.4,
    pattern:
      /\b(?:hypothetically|in a fictional (?:world|story)|for (?:educational|research) purposes only|imagine you (?:are|have) no)\b.{0,120}\b(?:no (?:rules|restrictions|limits|filters)|unrestricted|any (?:question|request)|illegal|anything)\b/,
  },
  {
    kind: 'decode and obey',
    weight: 0.9,
    pattern:
      /\b(?:decode|decrypt|rot13|base64|unscramble)\b.{0,80}\b(?:and|then) (?:\w{1,12} ){0,2}(?:execute|follow|obey|run|comply|do what|act on|carry out)\b/,
  },
  {
    kind: 'rules are void',
    weight: 0.8,
    pattern:
      /\b(?:your|all|the|any|these|those) (?:\w{1,12} ){0,2}(?:instructions?|rules|guidelines|restrictions|safety|directives|programming) (?:\w{1,12} ){0,2}(?:no longer (?:apply|applies|exist)|(?:are|is|have been|has been) (?:now )?(?:void|cancell?ed|disabled|suspended|lifted|revoked|overridden|obsolete|null))\b/,
  },
];

/** Score at which a text fails, by sensitivity. */
const THRESHOLDS = { low: 1.4, medium: 0.8, high: 0.5 } as const;
/** Invisible characters; they also split words so that no pattern sees them. */
const INVISIBLE = /\p{Default_Ignorable_Code_Point}/gu;
const TAGS = /[\u{e0020}-\u{e007e}]{4,4000}/gu;
/** Text judged at once. What a slice shares with the one before it is longer than any sign. */
const SLICE = 8_000;
const OVERLAP = 600;
const MAX_DECODED = 20;

/** Letters of other scripts that look like Latin ones, in a word that is otherwise Latin. */
const LOOKALIKES: Readonly<Record<string, string>> = {
  а: 'a',
  е: 'e',
  о: 'o',
  р: 'p',
  с: 'c',
  у: 'y',
  х: 'x',
  і: 'i',
  ѕ: 's',
  ј: 'j',
  ԁ: 'd',
  ɡ: 'g',
  ո: 'n',
  ν: 'v',
  ο: 'o',
  α: 'a',
  ι: 'i',
  ρ: 'p',
  ɩ: 'i',
  ⅼ: 'l',
};
const LOOKALIKE = /[аеорсухіѕјԁɡոνοαιρɩⅼ]/;
const MIXED = /[a-zаеорсухіѕјԁɡոνοαιρɩⅼ]{3,31}/g;

/** Text as signs are written for: lower case, compatible forms folded, nothing invisible, one space between words. */
function plainForm(text: string): string {
  const folded = text.normalize('NFKC').replace(INVISIBLE, '').toLowerCase();
  const latin = LOOKALIKE.test(folded)
    ? folded.replace(MIXED, (word) => (/[a-z]/.test(word) ? [...word].map((c) => LOOKALIKES[c] ?? c).join('') : word))
    : folded;
  return latin
    .replace(/[’‘]/g, "'")
    .replace(/[“”]/g, '"')
    .replace(/[\t\r\f\v \u00a0\u2000-\u200a]+/g, ' ')
    .replace(/ ?\n[\n ]*/g, '\n');
}

/** A text with its tag characters, which models read and people do not see, as the letters they stand for; null: it has none. */
function* revealed(text: string): Generator<number, string | null> {
  const pieces: string[] = [];
  let at = 0;
  for (const { 0: run, index } of text.matchAll(TAGS)) {
    const letters = [...run].map((c) => String.fromCharCode((c.codePointAt(0) ?? 0) - 0xe0000)).join('');
    pieces.push(canonicalText(text.slice(at, index)), ' ', letters, ' ');
    at = index + run.length;
    yield run.length + at / 16;
  }
  if (pieces.length === 0) return null;
  pieces.push(canonicalText(text.slice(at)));
  return pieces.join('');
}

/** What Base64 in a text says, where it says something readable. */
function decoded(text: string): string[] {
  const out: string[] = [];
  for (const [run] of text.matchAll(/(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,4000}={0,2}/g)) {
    if (out.length >= MAX_DECODED) break;
    if (/^[a-z]+$|^\d+$|^[A-Za-z]+(?:[-_/][A-Za-z]+)+$/.test(run)) continue;
    const said = Buffer.from(run, 'base64').toString('utf8');
    // Words with spaces: nothing else that decodes looks so.
    if (!said.includes('\ufffd') && /[a-z]{3} [a-z]{2}/i.test(said)) out.push(said);
  }
  return out;
}

interface Score {
  readonly sum: number;
  readonly kinds: ReadonlySet<string>;
}

function* scored(text: string): Generator<number, Score> {
  const best = new Map<string, number>();
  function* look(piece: string, extra: number): Generator<number, void> {
    // Signs run over the line breaks of a paragraph, except those that look for the start of a line.
    const plain = plainForm(piece);
    const flat = plain.includes('\n') ? plain.replaceAll('\n', ' ') : plain;
    for (const { kind, weight, pattern } of SIGNS)
      if ((best.get(kind) ?? 0) < weight + extra && (pattern.test(flat) || (plain !== flat && pattern.test(plain))))
        best.set(kind, weight + extra);
    yield 64 + plain.length;
  }
  for (let at = 0; at < text.length; at += SLICE) {
    const piece = text.slice(at === 0 ? 0 : at - OVERLAP, at + SLICE);
    yield* look(piece, 0);
    // Attackers do not hide harmless text.
    for (const hidden of decoded(piece)) yield* look(hidden, 0.3);
    if (/[\u{e0020}-\u{e007e}]{8,}/u.test(piece)) best.set('hidden text', 0.8);
  }
  let sum = 0;
  for (const weight of best.values()) sum += weight;
  return { sum, kinds: new Set(best.keys()) };
}

/**
 * `gateway.promptInjection`: wording that tries to take a model over, in all texts, each by itself: in English, and the usual
 * override in eight more languages; through look-alike letters, invisible characters and Base64. A heuristic: what it finds
 * and misses is stated in docs/guides/guardrail-checks.md. `sensitivity` moves the score at which a text fails.
 */
export const promptInjection = check({
  id: 'gateway.promptInjection',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ sensitivity: z.enum(['low', 'medium', 'high']).default('medium') }),
  timeoutMs: null,
  mutates: false,
  canonical: true,
  compile({ sensitivity }) {
    const threshold = THRESHOLDS[sensitivity];
    return {
      lookBehind: null,
      judge: (subject) =>
        paced(
          (function* (): Generator<number, Judgement> {
            const excerpts: Excerpt[] = [];
            const signs = new Set<string>();
            let most = 0;
            for (const part of subject.texts) {
              const { path, text } = part;
              const hidden = yield* revealed(asSent(part).text);
              const { sum, kinds } = yield* scored(hidden ?? text);
              most = Math.max(most, sum);
              if (sum < threshold) continue;
              for (const kind of kinds) signs.add(kind);
              excerpts.push({ path, start: 0, end: text.length, kind: 'prompt injection' });
            }
            const ok = excerpts.length === 0;
            return {
              verdict: ok,
              data: {
                explanation: ok ? 'No sign of an injection.' : `Signs of an injection: ${[...signs].join(', ')}.`,
                score: Math.round(most * 100) / 100,
                threshold,
              },
              excerpts,
            };
          })(),
        ),
    };
  },
});
