/** Members of request bodies in the declarations of an official client: what a release of it can name. */
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

interface Declaration {
  readonly file: string;
  /** Name of the namespace around it; empty at the top. */
  readonly inside: string;
  readonly text: string;
}

/** A declaration from its line to the line that closes it, and what is declared in a namespace below it. */
const OPENS = /^( *)(?:export )?(?:declare )?(interface|type|namespace) (\w+)/;

function declarationsOf(root: string): Map<string, Declaration[]> {
  const all = new Map<string, Declaration[]>();
  for (const file of readdirSync(root, { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.d.ts')) continue;
    const spaces: { name: string; indent: number }[] = [];
    let open: { name: string; indent: number; lines: string[] } | null = null;
    const close = () => {
      if (open === null) return;
      const inside = spaces.at(-1)?.name ?? '';
      all.set(open.name, [...(all.get(open.name) ?? []), { file, inside, text: open.lines.join('\n') }]);
      open = null;
    };
    for (const line of readFileSync(join(root, file), 'utf8').split('\n')) {
      if (/^ *(?:\/?\*|\/\/)/.test(line)) continue;
      const indent = line.length - line.trimStart().length;
      const [, , kind, name = ''] = OPENS.exec(line) ?? [];
      if (kind !== undefined || (line.trim() === '}' && open === null)) {
        close();
        while (spaces.length > 0 && (spaces.at(-1)?.indent ?? 0) >= indent) spaces.pop();
        if (kind === 'namespace') spaces.push({ name, indent });
        else if (kind !== undefined) open = { name, indent, lines: [line] };
      } else if (open !== null) {
        (open as { lines: string[] }).lines.push(line);
        if (line.trim() === '}' && indent === (open as { indent: number }).indent) close();
      }
    }
    close();
  }
  return all;
}

/** Names of members that are texts or lists of texts, or objects, below the roots, with the types that have them. */
export function clientMembers(client: string, roots: readonly string[]): Map<string, Set<string>> {
  const root = join(dirname(createRequire(import.meta.url).resolve(client)), 'resources');
  const declared = declarationsOf(root);
  const members = new Map<string, Set<string>>();
  const seen = new Set<Declaration>();
  const visit = (one: Declaration, name: string): void => {
    if (seen.has(one)) return;
    seen.add(one);
    for (const [, member = '', type = ''] of one.text.matchAll(/^\s+['"]?(\w+)['"]?\??: (.*)/gm)) {
      if (/^(?:boolean|number)\b/.test(type)) continue;
      members.set(member, (members.get(member) ?? new Set()).add(name));
    }
    for (const [, space = '', ref = ''] of one.text.matchAll(/\b(?:(\w+)\.)?([A-Z]\w+)\b/g)) {
      const candidates = declared.get(ref) ?? [];
      const near = candidates.filter(({ file, inside }) =>
        inside === '' ? true : space === inside || (space === '' && file === one.file && inside === one.inside),
      );
      for (const next of near) visit(next, ref);
    }
  };
  for (const name of roots) {
    const found = declared.get(name);
    if (found === undefined) throw new Error(`${client} declares no ${name}`);
    for (const one of found) visit(one, name);
  }
  return members;
}
