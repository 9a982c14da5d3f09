/** Texts without the values of a request's metadata, for readers from whom a setting hides it. */
import { groupName } from '../store/limit-types.ts';

/** What is shown in the place of a value of metadata. */
const HIDDEN = '***';

/** A copy without what limits name as `metadata.<key>:<value>`, and refusals as `user <value>`. */
export function hideMetadata<T>(metadata: unknown, shown: T): T {
  if (typeof metadata !== 'object' || metadata === null) return shown;
  const names = Object.entries(metadata).flatMap(([key, value]) => {
    const named = `metadata.${key}`;
    const group = groupName(named);
    const prefixes = group === undefined ? [`${named}:`] : [`${named}:`, ` ${group} `];
    return prefixes.map((prefix) => [prefix, String(value)] as const);
  });
  return hide(shown, names) as T;
}

function hide(value: unknown, names: readonly (readonly [string, string])[]): unknown {
  if (typeof value === 'string') {
    return names.reduce((text, [name, secret]) => text.replaceAll(name + secret, name + HIDDEN), value);
  }
  if (Array.isArray(value)) return value.map((item) => hide(item, names));
  if (typeof value !== 'object' || value === null) return value;
  const out: Record<string, unknown> = {};
  for (const [key, item] of Object.entries(value)) out[String(hide(key, names))] = hide(item, names);
  return out;
}
