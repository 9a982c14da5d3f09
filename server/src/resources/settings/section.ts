type Json = Readonly<Record<string, unknown>>;

/** A section of stored settings; empty when it is not there. */
export function part(settings: Json, key: string): Json {
  const value = settings[key];
  return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Json) : {};
}
