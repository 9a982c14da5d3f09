import type { JsonObject, JsonValue } from '../kernel/json.ts';

/** Longer bodies are recorded by size only. */
const MAX_CHARS = 65_536;
const MASK = '***';

/** Words of a field name, snake or camel case, that make its value a secret. */
const SECRET_WORDS = new Set([
  'key',
  'keys',
  'apikey',
  'secret',
  'secrets',
  'token',
  'password',
  'passwd',
  'passphrase',
  'credential',
  'credentials',
  'authorization',
  'cookie',
  'private',
  'certificate',
  'headers',
  'jwks',
]);

function isSecretName(name: string): boolean {
  return name
    .replace(/([a-z0-9])([A-Z])/g, '$1_$2')
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .some((word) => SECRET_WORDS.has(word));
}

/** JSON text of a request body for the audit log (api §23): every value under a secret-sounding name is masked. */
export function maskedBody(body: JsonObject | null): string | null {
  if (body === null) return null;
  const text = JSON.stringify(mask(body, false));
  return text.length <= MAX_CHARS ? text : JSON.stringify({ omitted: `${text.length} characters` });
}

function mask(value: JsonValue | undefined, secret: boolean): JsonValue {
  if (typeof value === 'string') return secret || value.includes('slc_') ? MASK : maskText(value);
  if (typeof value === 'number') return secret ? MASK : value;
  if (Array.isArray(value)) return value.map((item) => mask(item, secret));
  if (value !== null && typeof value === 'object') {
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [name, mask(item, secret || isSecretName(name))]),
    );
  }
  return value ?? null;
}

/** A text that is JSON itself, as configs may be sent, is masked like the object it holds. */
function maskText(text: string): string {
  if (!/^\s*[[{]/.test(text)) return text;
  try {
    return JSON.stringify(mask(JSON.parse(text) as JsonValue, false));
  } catch {
    return MASK;
  }
}
