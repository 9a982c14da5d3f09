/** Parameter shaping of a config as edits of the caller's bytes: order, white space and numbers of all else stay as they came. */
import type { JsonObject } from '../kernel/json.ts';
import { type ScanResult, type Splice, scanJson } from '../kernel/json-scan.ts';
import { holdsQuoted } from '../kernel/quoted-texts.ts';
import type { FieldChanges } from '../telemetry/decision-facts.ts';
import { changesBetween, UNCHANGED } from './field-changes.ts';
import type { Shaping } from './shaping.ts';

export interface ShapingEdits {
  /** Of all members but `model`, which is spliced under the name that the provider knows. */
  readonly edits: readonly Splice[];
  readonly changes: FieldChanges;
}

const NOTHING: ShapingEdits = { edits: [], changes: UNCHANGED };
/** Members that the splicing of `model` and `stream_options` looks at in the caller's own body. */
const APART: ReadonlySet<string> = new Set(['stream', 'stream_options']);
const ASCII = /^[\x20-\x7e]+$/;

/**
 * The edits that do what a shaping does, or null where the body has to be written anew: a member is taken out of it, or the
 * provider's own transform (`touches`) would change what is put in.
 */
export function shapingEdits(
  body: Buffer,
  known: ScanResult,
  shaping: Shaping | null,
  touches: readonly string[] | undefined,
): ShapingEdits | null {
  if (shaping === null) return NOTHING;
  const { defaults, overrides } = shaping;
  const given: JsonObject = { ...defaults, ...overrides };
  const names = Object.keys(given);
  const dropped = shaping.drops?.map(([name]) => String(name)) ?? [];
  if (known.empty || names.some((name) => APART.has(name) || !ASCII.test(name))) return null;
  if (dropped.some((name) => names.includes(name) || !ASCII.test(name))) return null;
  if (touches !== undefined && holdsQuoted(Buffer.from(JSON.stringify(given)), touches)) return null;
  const scan = scanJson(body, [...names, ...dropped]);
  if (dropped.some((name) => scan.get(name) !== undefined)) return null;
  const model = scan.get('model');
  if (model !== undefined && model.kind !== 'string') return null;
  return editsOf(body, scan, defaults ?? {}, overrides ?? {});
}

function editsOf(body: Buffer, scan: ScanResult, defaults: JsonObject, overrides: JsonObject): ShapingEdits {
  const edits: Splice[] = [];
  const before: JsonObject = {};
  const after: JsonObject = {};
  for (const [name, value] of Object.entries({ ...defaults, ...overrides })) {
    const range = scan.get(name);
    if (range !== undefined && !Object.hasOwn(overrides, name)) continue;
    if (name === 'model') continue;
    const text = JSON.stringify(value);
    after[name] = value;
    if (range === undefined) {
      const bytes = Buffer.from(`${JSON.stringify(name)}:${text},`);
      edits.push({ start: scan.insertAt, end: scan.insertAt, bytes });
    } else {
      before[name] = JSON.parse(body.toString('utf8', range.start, range.end)) as JsonObject;
      edits.push({ start: range.start, end: range.end, bytes: Buffer.from(text) });
    }
  }
  return { edits, changes: edits.length === 0 ? UNCHANGED : changesBetween(before, after) };
}
