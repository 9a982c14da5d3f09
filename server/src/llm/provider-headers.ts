import { SluiceError } from '../kernel/errors.ts';
import type { RequestField } from '../providers/account.ts';
import { ALL_FIELDS } from '../providers/accounts.ts';
import type { Provider } from '../providers/provider.ts';
import type { LlmRequest } from './state/request.ts';

/** A setting that requests may say, and its header `x-gateway-<name>`. */
interface Said extends RequestField {
  readonly setting: string;
  readonly secret: boolean;
  readonly header: string;
  /** The provider's own header that says the same. */
  readonly native: string | undefined;
}

/** Those of every provider. One that several providers have is there once. */
const SAID: readonly Said[] = [
  ...new Map(
    ALL_FIELDS.flatMap(([setting, { request, secret = false }]) =>
      request === undefined
        ? []
        : [
            [
              setting,
              {
                ...request,
                setting,
                secret,
                header: `x-gateway-${setting.replaceAll('_', '-')}`,
                native: request.header,
              },
            ] as const,
          ],
    ),
  ).values(),
];

/** Settings that may be given beside a stored credential. */
const BESIDE_STORED = SAID.filter(({ own, redirects }) => !own && !redirects);

/** Headers that point a call at another endpoint: refused in saved-only mode, ignored beside a stored credential. */
export const REDIRECTING_HEADERS: readonly string[] = SAID.filter(({ redirects }) => redirects).map(
  ({ header }) => header,
);

/** Headers whose values are credentials, whatever their names say. */
export const SECRET_HEADERS: readonly string[] = SAID.filter(({ secret }) => secret).map(({ header }) => header);

/** Settings that may be given beside a stored credential. */
export const KEEPS_ACCOUNT: ReadonlySet<string> = new Set(BESIDE_STORED.map(({ setting }) => setting));

/**
 * Settings that say whose organisation, project or account is billed and read, and where. A caller may give one that a
 * stored account leaves open; Sluice refuses another value than a stored account's.
 */
export const PINNED_SETTINGS: readonly string[] = SAID.filter(({ pinned }) => pinned).map(({ setting }) => setting);

/** Pinned settings by the provider's own header, which accounts may hold as their own header. */
const HELD_BY_HEADERS: ReadonlyMap<string, string> = new Map(
  SAID.flatMap(({ native, setting }) => (native === undefined ? [] : [[native, setting]])),
);
const PIN_OF: ReadonlyMap<string, string> = new Map([
  ...HELD_BY_HEADERS,
  ...SAID.flatMap(({ bound, setting }) => (bound === undefined ? [] : [[bound, setting] as const])),
]);

/** The pinned setting that a provider's header, in lower case, says; undefined for other headers. */
export const pinOf = (header: string): string | undefined => PIN_OF.get(header);

/** Settings of a stored account with the pins that only its other settings, or its own headers, hold. */
export function heldSettings(
  provider: Provider,
  settings: Readonly<Record<string, unknown>>,
  customHeaders: Readonly<Record<string, string>>,
): Readonly<Record<string, unknown>> {
  const held: Record<string, unknown> = { ...provider.implied?.(settings) };
  for (const [name, value] of Object.entries(customHeaders)) {
    const pin = HELD_BY_HEADERS.get(name.toLowerCase());
    if (pin !== undefined) held[pin] = value;
  }
  for (const [name, value] of Object.entries(settings)) if (value !== undefined && value !== '') held[name] = value;
  return held;
}

/** The first pinned setting of a stored account that a caller asks to change, or null. */
export function movedPin(
  stored: Readonly<Record<string, unknown>>,
  asked: Readonly<Record<string, unknown>>,
): string | null {
  for (const name of PINNED_SETTINGS) {
    const value = stored[name];
    if (value === undefined || value === null || value === '' || asked[name] === undefined) continue;
    if (asked[name] !== value) return name;
  }
  return null;
}

/** @param pin the setting of the stored provider that a request asks to change */
export function pinRefused(slug: string, pin: string): SluiceError {
  return new SluiceError(
    'malformed_call',
    `Provider @${slug} is stored with another ${pin}, and a request cannot change it. Leave out x-gateway-${pin.replaceAll('_', '-')}, or ${pin} in the config, or name a provider that is stored with that value.`,
    { param: pin },
  );
}

/** Settings from request headers. With a stored credential only those that cannot move it to another host count. */
export function headerSettings(request: LlmRequest, own: boolean): Record<string, string> {
  const out: Record<string, string> = {};
  if (!own && request.snapshot?.blockInlineConfig) return out;
  for (const { header, setting } of own ? SAID : BESIDE_STORED) {
    const value = request.header(header);
    if (value !== undefined) out[setting] = value;
  }
  return out;
}
