import { z } from 'zod';
import type { Credentials } from './provider.ts';

/** A value that travels in a header: printable ASCII, no line breaks. */
export const headerValue = z.string().regex(/^[\x21-\x7e]([\x20-\x7e]{0,510}[\x21-\x7e])?$/, {
  error: 'must be 1 to 512 printable ASCII characters',
});

/** Marks a setting that says where calls and secrets go: stored secrets do not follow when it changes. */
export const address = <T extends z.ZodType>(schema: T): T => schema.meta({ address: true });

export const isAddress = (schema: z.ZodType): boolean => schema.meta()?.address === true;

/** Accepted for every provider. The address is checked by the egress guard, not here. */
const COMMON_SETTINGS = {
  custom_host: address(z.string().min(1).max(2048).optional()),
  custom_headers: z.record(z.string().regex(/^[A-Za-z0-9-]{1,128}$/), headerValue).optional(),
} as const;

/** The settings of a provider: its own and the common ones; unknown keys are refused. */
export function settingsOf(own: z.ZodRawShape = {}): z.ZodType {
  return z.strictObject({ ...COMMON_SETTINGS, ...own });
}

export const NO_SETTINGS: z.ZodType = settingsOf();

/** A setting that is a non-empty text, else undefined. */
export function textSetting(credentials: Credentials, name: string): string | undefined {
  const value = credentials.settings[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}
