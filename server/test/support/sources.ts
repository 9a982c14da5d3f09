/** The sources of the server, for tests that read them: areas, imports, and what of a text is code. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

export const SRC = fileURLToPath(new URL('../../src', import.meta.url));
export const ROOT = resolve(SRC, '../..');

const PORT_FILES = new Set([
  'ports.ts',
  'schema.ts',
  'column.ts',
  'limit-types.ts',
  'alert-tables.ts',
  'guardrail-tables.ts',
  'log-tables.ts',
  'training-tables.ts',
  'feedback-table.ts',
  'secret-reference-table.ts',
  'sign-in-tables.ts',
  'vault.ts',
]);

export interface Source {
  readonly path: string;
  readonly area: string;
  readonly text: string;
  readonly imports: readonly { readonly target: string; readonly typeOnly: boolean }[];
}

export function walk(dir: string): string[] {
  return readdirSync(dir, { withFileTypes: true }).flatMap((entry) => {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) return entry.name === '__fixtures__' ? [] : walk(path);
    return entry.name.endsWith('.ts') ? [path] : [];
  });
}
export function areaOf(path: string): string {
  const [first = '', second = ''] = path.split('/');
  if (!path.includes('/')) return first.replace(/\.ts$/, '');
  if (first !== 'store') return first;
  return PORT_FILES.has(second) ? 'store' : 'adapters';
}

const IMPORT =
  /(?:^|\n)\s*(import|export)\s+(type\s+)?(?:[^'";]*?\sfrom\s+)?['"]([^'"]+)['"]|\b(?:import|require|getBuiltinModule)\(\s*['"]([^'"]+)['"]\s*\)/g;

export const sources: Source[] = walk(SRC).map((file) => {
  const path = relative(SRC, file);
  const text = readFileSync(file, 'utf8');
  const imports = [...text.matchAll(IMPORT)].map((match) => {
    const spec = match[3] ?? match[4] ?? '';
    return {
      target: spec.startsWith('.') ? relative(SRC, resolve(file, '..', spec)) : spec,
      typeOnly:
        match[2] !== undefined ||
        /^\s*import\s*\{(?:\s*type\s+\w+(?:\s+as\s+\w+)?\s*,?)+\s*\}/.test(match[0].trimStart()),
    };
  });
  return { path, area: areaOf(path), text, imports };
});

/** Suites that cross areas, and what they share. */
export const suites = walk(resolve(SRC, '../test')).map((file) => ({
  path: relative(ROOT, file),
  text: readFileSync(file, 'utf8'),
}));
export const product = sources.filter(
  (source) => !source.path.endsWith('.test.ts') && !source.path.includes('conformance/'),
);

export function uncommented(text: string): string {
  return text.replace(/\/\*[\s\S]*?\*\//g, '').replace(/(^|[^:'"`])\/\/.*$/gm, '$1');
}

/** Code without comments and strings, so that a word in prose is not a use. */
export function code(text: string): string {
  return uncommented(text).replace(/'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"/g, "''");
}

export function users(pattern: RegExp, allowed: readonly string[]): string[] {
  return product
    .filter((source) => !allowed.some((path) => source.path.startsWith(path)) && pattern.test(code(source.text)))
    .map((source) => source.path);
}
