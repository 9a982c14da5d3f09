import { readFileSync } from 'node:fs';
import { SourceMap } from 'node:module';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
const maps = new Map();

/** A character that the builder has escaped, after it made the map: one column there, six in the file. */
const ESCAPED = /\\u(?!00[0-7])[0-9a-f]{4}/g;

/** What says where code of a file of the built server was; null for other files, and where it cannot be read. */
function mapOf(file) {
  if (!file.startsWith(DIST)) return null;
  let known = maps.get(file);
  if (known === undefined) {
    try {
      const map = new SourceMap(JSON.parse(readFileSync(`${file}.map`, 'utf8')));
      const lines = readFileSync(file, 'latin1').split('\n');
      known = { map, escapes: lines.map((line) => [...line.matchAll(ESCAPED)].map(({ index }) => index)) };
    } catch {
      known = null;
    }
    maps.set(file, known);
  }
  return known;
}

/** The place in the sources of a line and a column, both from 0. */
function sourceOf(file, line, column) {
  const known = mapOf(file);
  if (known === null) return undefined;
  const before = known.escapes[line]?.filter((at) => at < column).length ?? 0;
  return known.map.findEntry(line, column - 5 * before);
}

/** A line of a stack with the place in the sources, where it has one in the built server. */
function named(frame) {
  const line = String(frame);
  const url = frame.getFileName();
  if (typeof url !== 'string' || !url.startsWith('file:')) return line;
  const file = fileURLToPath(url);
  const entry = sourceOf(file, (frame.getLineNumber() ?? 1) - 1, (frame.getColumnNumber() ?? 1) - 1);
  if (entry?.originalSource === undefined) return line;
  const source = path.resolve(path.dirname(file), entry.originalSource);
  const place = `${url}:${frame.getLineNumber()}:${frame.getColumnNumber()}`;
  return line.replace(place, `${source}:${entry.originalLine + 1}:${entry.originalColumn + 1}`);
}

/**
 * Stacks of the built server name lines of the sources. Node.js would read the maps of all files at the start, 4 MB; here
 * they are read with the first stack that is looked at, which few errors ever are.
 */
export function nameSources() {
  Error.prepareStackTrace = (error, frames) =>
    [String(error), ...frames.map((frame) => `    at ${named(frame)}`)].join('\n');
}
