import { isCleanText, isMask, REFUSED_MASK } from '../body-fields.ts';
import { formatPath, type Issue } from '../issues.ts';
import { CONFIG_LEVEL, type Level, SECRET_KEYS } from './structure.ts';

/** As deep as any JSON that reaches the server (security limits); also bounds the recursion here and in the schema. */
const MAX_DEPTH = 64;

const secretKeys: ReadonlySet<string> = new Set(SECRET_KEYS);

/** Spellings of a level's keys that are not the key itself, in lower camel case. */
const spellings = new WeakMap<readonly string[], Map<string, string>>();

function aliasesOf(level: Level): Map<string, string> {
  let aliases = spellings.get(level.keys);
  if (!aliases) {
    aliases = new Map();
    for (const key of level.keys) {
      const camel = key.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
      if (camel !== key) aliases.set(camel, key);
      // The common capitalisation of the product name inside this one key.
      if (key === 'strict_open_ai_compliance') aliases.set('strictOpenAICompliance', key);
    }
    spellings.set(level.keys, aliases);
  }
  return aliases;
}

type Path = (string | number)[];

/**
 * A JSON value with the keys of the config format in snake case. Content below `override_params`, `metadata`,
 * check parameters and queries keeps its spelling and is the value that was given. Collects what no schema can say well: text that cannot be stored,
 * keys given in both spellings, the old `options` format, masked secrets.
 */
export function normalise(value: unknown): { value: unknown; issues: Issue[] } {
  const issues: Issue[] = [];
  const path: Path = [];

  function report(message: string): undefined {
    if (issues.length < 20) issues.push({ path: formatPath(path), message });
    return undefined;
  }

  function at<T>(key: string | number, run: () => T): T {
    path.push(key);
    const result = run();
    path.pop();
    return result;
  }

  /** Content is looked at, and not copied: there may be a megabyte of it. */
  function check(input: unknown): void {
    if (path.length > MAX_DEPTH) report(`is nested deeper than ${MAX_DEPTH} levels`);
    else if (typeof input === 'string') {
      if (!isCleanText(input)) report('must not contain U+0000 or unpaired surrogates');
    } else if (typeof input === 'number') {
      if (!Number.isFinite(input)) report('must be a finite number');
    } else if (Array.isArray(input)) {
      for (let index = 0; index < input.length; index++) {
        path.push(index);
        check(input[index]);
        path.pop();
      }
    } else if (typeof input === 'object' && input !== null) {
      for (const key of Object.keys(input)) {
        if (!keyAllowed(key)) continue;
        path.push(key);
        check((input as Record<string, unknown>)[key]);
        path.pop();
      }
    } else if (typeof input !== 'boolean' && input !== null) report('must be a JSON value');
  }

  function plain(input: unknown): unknown {
    check(input);
    return input;
  }

  function keyAllowed(key: string): boolean {
    if (key === '__proto__') at(key, () => report('is a reserved name'));
    else if (!isCleanText(key)) at(key, () => report('must not contain U+0000 or unpaired surrogates'));
    else return true;
    return false;
  }

  function levelled(input: unknown, level: Level): unknown {
    if (path.length > MAX_DEPTH) return report(`is nested deeper than ${MAX_DEPTH} levels`);
    if (Array.isArray(input)) {
      if (path.length > 0 && level.most !== undefined && input.length > level.most)
        return report(`must have at most ${level.most} items`);
      return input.map((item, index) => at(index, () => levelled(item, level)));
    }
    if (typeof input !== 'object' || input === null) return plain(input);
    const aliases = aliasesOf(level);
    const out = new Map<string, unknown>();
    for (const [key, item] of Object.entries(input)) {
      if (!keyAllowed(key)) continue;
      const known = aliases.get(key) ?? key;
      const below = Object.hasOwn(level.below, known) ? level.below[known] : undefined;
      if (out.has(known)) at(known, () => report('is given in two spellings'));
      else if (known === 'options' && level === CONFIG_LEVEL) {
        at(known, () =>
          report('belongs to the old config format: name providers in "targets" and the mode in "strategy"'),
        );
      } else if (level === CONFIG_LEVEL && secretKeys.has(known) && isMask(item)) at(known, () => report(REFUSED_MASK));
      else if (level === CONFIG_LEVEL && isMaskedKey(known)) {
        at(known, () => report('shows a stored secret in answers and cannot be written: send the secret itself'));
      } else
        out.set(
          known,
          at(known, () => (below ? levelled(item, below()) : plain(item))),
        );
    }
    return Object.fromEntries(out);
  }

  return { value: levelled(value, CONFIG_LEVEL), issues };
}

function isMaskedKey(key: string): boolean {
  return key.startsWith('masked_') && secretKeys.has(key.slice('masked_'.length));
}
