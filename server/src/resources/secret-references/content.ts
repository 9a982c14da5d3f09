/** Which part of a secret is meant. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import { Secret } from '../../kernel/secret.ts';
import type { SecretContent } from './manager.ts';

/**
 * The text of a secret, or of one member of a secret that is a JSON object. `format` `json` gives what the text means as
 * JSON. Throws `out_of_service` with what to do; `slug` names the reference in it, and no part of the secret is.
 */
export function pick(
  content: SecretContent,
  slug: string,
  key: string | null,
  format: 'json' | 'string',
): Secret | unknown {
  const problem = (why: string) => new SluiceError('out_of_service', `The secret reference ${slug} ${why}`);
  const whole = (): unknown => {
    if ('object' in content) return content.object;
    try {
      return parseExact(content.text.reveal());
    } catch {
      return undefined;
    }
  };
  let value: unknown;
  if (key !== null && key !== '') {
    const object = whole();
    if (!isObject(object))
      throw problem(`names the key ${JSON.stringify(key)}, but its secret is no JSON object: leave secret_key out.`);
    if (!Object.hasOwn(object, key)) {
      throw problem(`names the key ${JSON.stringify(key)}, which its secret does not have: correct secret_key.`);
    }
    value = object[key];
  } else if ('text' in content) {
    value = content.text.reveal();
  } else if (format === 'json') {
    return content.object;
  } else {
    throw problem('leads to an object: say with secret_key which member of it is meant.');
  }
  if (format === 'json') {
    if (typeof value !== 'string') return value;
    try {
      return parseExact(value);
    } catch {
      throw problem('leads to a text that is no JSON, and its mapping has value_format "json".');
    }
  }
  const raw =
    typeof value === 'string' ? value : isObject(value) || Array.isArray(value) ? JSON.stringify(value) : String(value);
  // Files and command lines end in a line break that is no part of a key.
  const text = raw.replace(/(?:\r?\n){1,2}$/, '');
  if (value === null || text === '') throw problem('leads to an empty value: store the secret in its manager.');
  return new Secret(text);
}
