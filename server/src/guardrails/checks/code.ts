import { z } from 'zod';
import type { Excerpt, Judgement, TextPart } from '../check.ts';
import { fences } from './json.ts';
import { ANY_TARGET, check, not, OUTPUT, paced, verdict } from './support.ts';

interface Format {
  /** Names people write behind a fence. */
  readonly names: readonly string[];
  /** What the language looks like where no fence names it: two different ones must be found. Each is linear. */
  readonly signs: readonly RegExp[];
}

/** The languages whose code this check looks for. */
const FORMATS = {
  SQL: {
    names: ['sql', 'mysql', 'postgresql', 'postgres', 'plsql', 'tsql', 'sqlite'],
    signs: [
      /^[ \t]*(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE TABLE|ALTER TABLE)\s/im,
      /\b(?:FROM|WHERE|VALUES|GROUP BY|ORDER BY|JOIN|SET|PRIMARY KEY)\b/,
      /;[ \t]*$/m,
    ],
  },
  Python: {
    names: ['python', 'py', 'python3'],
    signs: [
      /^[ \t]*def \w{1,80}\(.{0,200}\).{0,80}:[ \t]*$/m,
      /^(?:from [\w.]{1,80} )?import \w/m,
      /^[ \t]*(?:if|for|while|with|try|elif|else)\b[^\n{]{0,200}:[ \t]*$/m,
      /\bprint\(/,
    ],
  },
  TypeScript: {
    names: ['typescript', 'ts', 'tsx'],
    signs: [
      /^[ \t]*(?:export )?(?:interface|type|enum) \w{1,80}\b.{0,80}[{=]/m,
      /[\w)]\??: (?:string|number|boolean|void|unknown)\b/,
      /^[ \t]*(?:const|let|function|import|export)\b/m,
    ],
  },
  JavaScript: {
    names: ['javascript', 'js', 'jsx', 'mjs', 'node'],
    signs: [
      /^[ \t]*(?:const|let|var) [\w{[]/m,
      /=>[ \t]*[{(\w]/,
      /\bfunction\b.{0,100}\{/,
      /\bconsole\.log\(/,
      /^[ \t]*(?:import .{0,100} from|export (?:default|const|function))\b/m,
    ],
  },
  Java: {
    names: ['java'],
    signs: [
      /\bpublic (?:static )?(?:final )?(?:class|void|int|interface)\b/,
      /\bSystem\.out\.print/,
      /^import java/m,
      /\bString\[\] args\b/,
    ],
  },
  'C#': {
    names: ['csharp', 'cs', 'c#', 'dotnet'],
    signs: [/^using [A-Z][\w.]{0,80};/m, /\bnamespace [A-Z]/, /\bConsole\.Write/, /\{ get; (?:set;|init;)? ?\}/],
  },
  'C++': {
    names: ['cpp', 'c++', 'cxx', 'cc', 'hpp'],
    signs: [/^#include <\w{1,40}>/m, /\bstd::\w/, /\btemplate ?</, /\bcout ?<</],
  },
  C: {
    names: ['c', 'h'],
    signs: [/^#include [<"][\w/]{1,60}\.h[>"]/m, /\bint main\(/, /\bprintf\(/, /\b(?:char|int|void) ?\*\w/],
  },
  Ruby: {
    names: ['ruby', 'rb'],
    signs: [/^[ \t]*def \w{1,80}[^:{]{0,100}$/m, /^[ \t]*end[ \t]*$/m, /\bputs ['"\w]/, /\bdo \|\w/],
  },
  PHP: { names: ['php'], signs: [/<\?php/, /\$\w{1,80}(?:->|\s?=)/, /\becho ['"$]/] },
  Swift: {
    names: ['swift'],
    signs: [
      /\bfunc \w{1,80}\(.{0,100}\) ?(?:->|\{)/,
      /\b(?:let|var) \w{1,80}(?:: ?\[?[A-Z]\w{0,40}\]?\??)? =/,
      /^import (?:Foundation|UIKit|SwiftUI)/m,
      /\bguard let\b/,
    ],
  },
  Kotlin: {
    names: ['kotlin', 'kt', 'kts'],
    signs: [/\bfun \w{1,80}\(/, /\bval \w{1,80}\b.{0,60}=/, /\bprintln\(/, /\bdata class\b/],
  },
  Go: {
    names: ['go', 'golang'],
    signs: [/^package \w{1,40}$/m, /\bfunc (?:\(\w{1,40} \*?\w{1,40}\) )?\w{1,80}\(/, /:= /, /\bfmt\.Print/],
  },
  Rust: {
    names: ['rust', 'rs'],
    signs: [/\bfn \w{1,80}(?:<.{0,40}>)?\(/, /\blet mut \w/, /\bprintln!\(/, /\bimpl\b.{0,80}\{/, /^use \w{1,40}::/m],
  },
  Scala: {
    names: ['scala', 'sc'],
    signs: [/\bobject [A-Z]\w{0,80}/, /\bdef \w{1,80}.{0,100}=/, /\bcase class\b/, /\bval \w{1,80}.{0,40}=/],
  },
  R: { names: ['r', 'rscript'], signs: [/\w\.? ?<- /, /\blibrary\(\w/, /\bfunction\(/, /\bc\(["\d]/] },
  Perl: {
    names: ['perl', 'pl'],
    signs: [/\bmy [$@%]\w/, /^use (?:strict|warnings)/m, /\bsub \w{1,80} \{/, /=~ [ms]?\//],
  },
  Shell: {
    names: ['shell', 'bash', 'sh', 'zsh', 'console', 'terminal', 'shellscript'],
    signs: [
      /^#!\/(?:usr\/)?bin\/(?:env )?(?:ba|z)?sh/m,
      /^[ \t]*(?:\$ |sudo |apt|curl |grep |cd |echo |export |chmod |mkdir )/m,
      /\b(?:then|fi|done|esac)\b/,
      / \|\s?\w{1,20} |&& \w|\$\{?\w{1,40}\}?/,
    ],
  },
  HTML: {
    names: ['html', 'htm', 'xhtml'],
    signs: [
      /<!doctype html/i,
      /<\/(?:html|body|div|p|span|head|table|ul|a)>/i,
      /<(?:html|body|div|p|span|head|table|ul|a)[\s>]/i,
    ],
  },
  CSS: {
    names: ['css', 'scss', 'less'],
    signs: [/^[ \t]*[.#@]?[\w-]{1,60}[^{};\n]{0,100}\{/m, /^[ \t]*[\w-]{2,40}: ?[^;{}\n]{1,200};[ \t]*$/m],
  },
  XML: {
    names: ['xml', 'svg', 'xsd', 'xsl'],
    signs: [/<\?xml /, /<[A-Za-z][\w:.-]{0,80}(?: [^<>]{0,300})?>/, /<\/[A-Za-z][\w:.-]{0,80}>/],
  },
  JSON: { names: ['json', 'jsonc', 'json5', 'jsonl'], signs: [/^\s{0,20}[{[]/, /"\s?:\s?(?:["{[\d]|true|false|null)/] },
  YAML: {
    names: ['yaml', 'yml'],
    signs: [/^---[ \t]*$/m, /^[\w-]{1,60}:(?: \S.{0,200})?$/m, /^ {2,20}(?:- )?[\w-]{1,60}:(?: \S.{0,200})?$/m],
  },
  Markdown: {
    names: ['markdown', 'md', 'mdx'],
    signs: [
      /^#{1,6} \S/m,
      /^[ \t]{0,10}(?:[-*+]|\d{1,3}\.) \S/m,
      /\*\*[^*\n]{1,200}\*\*/,
      /\[[^[\]\n]{1,200}\]\([^()\n]{1,300}\)/,
    ],
  },
  Dockerfile: {
    names: ['dockerfile', 'docker', 'containerfile'],
    signs: [/^FROM [\w./:@-]{1,200}/m, /^(?:RUN|CMD|COPY|ENTRYPOINT|WORKDIR|EXPOSE|ENV) \S/m],
  },
} satisfies Record<string, Format>;

type FormatName = keyof typeof FORMATS;
const NAMES = Object.keys(FORMATS) as [FormatName, ...FormatName[]];
/** Text outside named fences is looked at this far: what a language looks like shows early. */
const LOOKED_AT = 20_000;

/**
 * `default.containsCode`: passes when a text holds code of the format: a fenced block that names it, or one (or prose)
 * without a name that shows two signs of it. A text is looked at whole for fences, 20 000 characters for signs.
 */
export const containsCode = check({
  id: 'default.containsCode',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ format: z.enum(NAMES), not }),
  timeoutMs: null,
  mutates: false,
  canonical: true,
  compile({ format, not: inverted }) {
    const { names, signs }: Format = FORMATS[format];
    function* looksLike(text: string): Generator<number, boolean> {
      const looked = text.slice(0, LOOKED_AT);
      let seen = 0;
      for (const sign of signs) {
        if (sign.test(looked)) seen += 1;
        if (seen === 2) return true;
        yield 64 + looked.length / 2;
      }
      return false;
    }
    /** The place of the first code of the format; null for none. */
    function* codeIn(text: string): Generator<number, { readonly start: number; readonly end: number } | null> {
      const blocks = yield* fences(text);
      for (const { language, body, start, end } of blocks) {
        const named = language !== '';
        if (named ? names.includes(language.replace(/[,:].*$/, '')) : yield* looksLike(body)) return { start, end };
      }
      return blocks.length === 0 && (yield* looksLike(text)) ? { start: 0, end: text.length } : null;
    }
    function* look(texts: readonly TextPart[]): Generator<number, Judgement> {
      const excerpts: Excerpt[] = [];
      for (const { path, text } of texts) {
        const place = yield* codeIn(text);
        if (place !== null) excerpts.push({ path, ...place, kind: `${format} code` });
      }
      const ok = excerpts.length > 0;
      return verdict(ok, inverted, ok ? `There is ${format} code.` : `There is no ${format} code.`, {}, excerpts);
    }
    return { lookBehind: null, judge: ({ texts }) => paced(look(texts)) };
  },
});
