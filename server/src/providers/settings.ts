import { z } from 'zod';
import type { Credentials } from './provider.ts';

/** A value that travels in a header: printable ASCII, no line breaks. */
export const headerValue = z.string().regex(/^[\x21-\x7e]([\x20-\x7e]{0,510}[\x21-\x7e])?$/, {
  error: 'must be 1 to 512 printable ASCII characters',
});

/** A setting that is a non-empty text, else undefined. */
export function textSetting(credentials: Credentials, name: string): string | undefined {
  const value = credentials.settings[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
