/**
 * Reads the sentences that people meet out of TypeScript and Markdown, so that one rule can judge them all.
 * It is a reader for a lint: it knows strings, templates, comments and patterns, and no grammar beyond that.
 */

export interface Passage {
  /** 1-based line where the passage begins. */
  readonly line: number;
  readonly text: string;
}

/** What may stand before a pattern: after a value, a slash divides. */
const BEFORE_PATTERN = /(?:^|[(,=:[!&|?{};+\-*%<>~^\n]|\breturn|\btypeof|\bcase)\s*$/;

/** Where the pattern that begins at `at` ends: the index after its last slash, or after the first one where it is none. */
function skipPattern(source: string, at: number): number {
  let inClass = false;
  let i = at + 1;
  for (; i < source.length; i += 1) {
    const c = source[i];
    if (c === '\\') i += 1;
    else if (c === '\n') return at + 1;
    else if (c === '[') inClass = true;
    else if (c === ']') inClass = false;
    else if (c === '/' && !inClass) break;
  }
  return i + 1;
}

/** A passage and where it is in its source: indices, `to` after its end. */
interface Placed extends Passage {
  readonly from: number;
  readonly to: number;
}

/** All literals and comments of TypeScript, as they are written. */
function passages(source: string): { readonly texts: Placed[]; readonly remarks: Placed[] } {
  const found: Placed[] = [];
  const remarks: Placed[] = [];
  let line = 1;
  let i = 0;
  const newlines = (text: string): number => text.split('\n').length - 1;

  const template = (start: number): { readonly text: string; readonly to: number } => {
    let text = '';
    let at = start + 1;
    while (at < source.length && source[at] !== '`') {
      if (source[at] === '\\') {
        text += source[at + 1] === 'n' ? '\n' : (source[at + 1] ?? '');
        at += 2;
      } else if (source.startsWith('${', at)) {
        text += 'X';
        at = inserted(at + 2);
      } else {
        text += source[at];
        at += 1;
      }
    }
    return { text, to: at + 1 };
  };

  /** Reads an insertion of a template to after its brace; literals inside are passages too. */
  const inserted = (start: number): number => {
    let depth = 1;
    let at = start;
    while (at < source.length && depth > 0) {
      const c = source[at];
      if (c === '{') depth += 1;
      else if (c === '}') depth -= 1;
      if (c === "'" || c === '"' || c === '`') at = literal(at);
      else at += 1;
    }
    return at;
  };

  const literal = (start: number): number => {
    const quote = source[start];
    const at = line + newlines(source.slice(i, start));
    if (quote === '`') {
      const { text, to } = template(start);
      found.push({ line: at, text, from: start, to });
      return to;
    }
    let text = '';
    let end = start + 1;
    while (end < source.length && source[end] !== quote && source[end] !== '\n') {
      if (source[end] === '\\') {
        text += source[end + 1] === 'n' ? '\n' : (source[end + 1] ?? '');
        end += 2;
      } else {
        text += source[end];
        end += 1;
      }
    }
    found.push({ line: at, text, from: start, to: end + 1 });
    return end + 1;
  };

  while (i < source.length) {
    const c = source[i];
    let to = i + 1;
    if (source.startsWith('//', i)) to = source.indexOf('\n', i) < 0 ? source.length : source.indexOf('\n', i);
    else if (source.startsWith('/*', i)) to = source.indexOf('*/', i + 2) + 2;
    if (to > i + 1) remarks.push({ line, text: source.slice(i, to), from: i, to });
    else if (c === "'" || c === '"' || c === '`') to = literal(i);
    else if (c === '/' && BEFORE_PATTERN.test(source.slice(Math.max(0, i - 40), i))) to = skipPattern(source, i);
    line += newlines(source.slice(i, to));
    i = to;
  }

  found.sort((a, b) => a.from - b.from);
  return { texts: found, remarks };
}

/**
 * The text literals of TypeScript; what a template inserts reads as `X`. Literals joined by `+` are one passage.
 * Comments, patterns and import paths are left out.
 */
export function literals(source: string): Passage[] {
  const joined: Passage[] = [];
  let last: Placed | null = null;
  for (const one of passages(source).texts) {
    const between = last ? source.slice(last.to, one.from) : '';
    const before = joined.at(-1);
    if (last && before && /^\s*\+\s*$/.test(between))
      joined[joined.length - 1] = { line: before.line, text: before.text + one.text };
    else joined.push({ line: one.line, text: one.text });
    last = one;
  }
  return joined;
}

/**
 * The comments of TypeScript without their marks; code in them reads as `X`. Line comments below each other are one
 * passage. A docstring begins with a space, others do not.
 */
export function comments(source: string): Passage[] {
  const joined: Passage[] = [];
  let last: Placed | null = null;
  for (const one of passages(source).remarks) {
    const bare = plain(one.text.replace(/^\/\*+|\*\/$/g, '').replace(/^[ \t]*(?:\/\/|\*)[ \t]?/gm, ''));
    const text = one.text.startsWith('/**') ? ` ${bare}` : bare;
    const before = joined.at(-1);
    const below =
      last?.text.startsWith('//') && one.text.startsWith('//') && /^\s*$/.test(source.slice(last.to, one.from));
    if (before && below) joined[joined.length - 1] = { line: before.line, text: `${before.text}\n${text}` };
    else joined.push({ line: one.line, text });
    last = one;
  }
  return joined;
}

/** The prose of a Markdown page: paragraphs, items, headings and cells; code blocks are left out, code in a line reads as `X`. */
export function paragraphs(page: string): Passage[] {
  const found: Passage[] = [];
  let text = '';
  let from = 1;
  let fence: string | null = null;
  const end = (): void => {
    if (text.trim() !== '') found.push({ line: from, text: text.trim() });
    text = '';
  };
  page.split('\n').forEach((raw, index) => {
    const fenced = /^\s*(```+|~~~+)/.exec(raw)?.[1];
    if (fence !== null) {
      if (fenced?.startsWith(fence)) fence = null;
      return;
    }
    if (fenced !== undefined) {
      end();
      fence = fenced;
      return;
    }
    const row = raw.trim();
    if (row === '' || /^#+ /.test(row) || /^([-*]|\d+\.) /.test(row) || row.startsWith('|')) end();
    if (row.startsWith('|')) {
      for (const cell of row.replaceAll('\\|', ' ').split('|'))
        if (/\p{L}/u.test(cell)) found.push({ line: index + 1, text: plain(cell) });
      return;
    }
    if (text === '') from = index + 1;
    text += ` ${row.replace(/^(#+|[-*]|\d+\.) /, '')}`;
    if (/^#+ /.test(row)) end();
  });
  end();
  return found.map(({ line, text: prose }) => ({ line, text: plain(prose) }));
}

/** Prose without its marks: code reads as `X`, links as their words. */
function plain(text: string): string {
  return text
    .replace(/(`+)[^`]*\1/g, 'X')
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, '$1')
    .replace(/\*\*|__/g, '')
    .trim();
}

/** Sentences end at `.`, `!`, `?` or `…` before a space, and at line ends. */
export function sentences(text: string): string[] {
  return text
    .split(/(?<=[.!?…])\s+|\n+/)
    .map((sentence) => sentence.trim())
    .filter((sentence) => sentence !== '');
}

/** Phrases that readers stumbled over, with what to say in their place. */
const BANNED: readonly (readonly [RegExp, string])[] = [
  [/\b(?:is|are|was|were|be|been) (?:\w+ly )?told\b/i, 'say who returns, says or shows it'],
  [/\bof (?:its|their|his|her|your|our) own\b/i, 'say “its own …”'],
  [/\b(?:stands?|stood) (?:in|at|on|for|behind|beside|above|below|under|there|by)\b/i, 'say “is”'],
  [/(?:^|[.:;!?—] )What (?:is|are|was|were|comes?|stops?|stays?)\b(?![^.!?]*\?)/, 'name the thing'],
  [/(?:^|[.:;!?,] )(?:nobody|whoever|who [a-z]+s)\b(?![^.!?]*\?)/i, 'name the person or the part'],
  [/\b(?:he|she|his|him)\b/i, 'say “they” or “you”'],
  [/\bgo(?:es|ne)? on with\b/i, 'say “continue”'],
  [/\ban? (?:[A-Z]\w+ )?of (?:mine|ours)\b/i, 'say which'],
];

/**
 * The same for comments, where the field's terms stay: text is “told apart” and a name “stands for” a value.
 * The first sentence of a docstring is a label, which may say “What is known of a call”.
 */
const BANNED_IN_COMMENTS: typeof BANNED = [
  [/\b(?:is|are|was|were|be|been) (?:\w+ly )?told\b(?! apart)/i, 'say who returns, says or shows it'],
  [/\bof (?:its|their|his|her|your|our) own\b/i, 'say “its own …”'],
  [
    /\b(?:stands?|stood) (?:in|at|on|behind|beside|above|below|under|there|by)\b(?! (?:the|its|their) way)/i,
    'say “is”',
  ],
  [/(?:^|[.!?] )What (?:is|are|was|were)\b(?![^.!?]*\?)/, 'name the thing'],
  [/(?:^|[.:;!?] )(?:nobody|whoever)\b(?![^.!?]*\?)/i, 'name the person or the part'],
  [/\b(?:he|she|his|him)\b/i, 'say “they” or “the user”'],
  [/\bgo(?:es|ne)? on with\b/i, 'say “continue”'],
];

/** Words that one sentence may have. */
const MAX_WORDS = 30;

/** The phrases of `banned` in a text, one line each: the first of each kind. */
function phrases(text: string, banned: typeof BANNED): string[] {
  return banned.flatMap(([pattern, mend]) => {
    const match = pattern.exec(text);
    if (!match) return [];
    return [`“${match[0].trim()}” (${mend}): ${text.slice(Math.max(0, match.index - 40), match.index + 80)}`];
  });
}

/** What a reader would stumble over in a comment (of `comments`), one line each; none is good. */
export function commentStumbles(text: string): string[] {
  // The label of a docstring is no subject.
  return phrases(text.replace(/\s+/g, ' ').replace(/^ What (?=is|are|was|were)/, ' '), BANNED_IN_COMMENTS);
}

/** What a reader would stumble over in a passage, one line each; none is good. */
export function stumbles(text: string): string[] {
  const found: string[] = [];
  for (const sentence of sentences(text)) {
    const words = sentence.split(/\s+/).filter((word) => /[\p{L}\p{N}]/u.test(word)).length;
    if (words > MAX_WORDS) found.push(`${words} words: ${sentence}`);
  }
  return [...found, ...phrases(text, BANNED)];
}
