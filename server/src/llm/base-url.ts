import { pathOnly } from '../kernel/path-only.ts';
import { OPERATIONS } from '../operations/operation.ts';

/** First segments below `/v1` that clients of providers ask for: `chat`, `messages`, `files`. */
const AREAS: ReadonlySet<string> = new Set(
  Object.values(OPERATIONS)
    .map(({ path }) => path.split('/')[1] ?? '')
    .filter((area) => /^[a-z_]+$/.test(area)),
);

/**
 * What the client of an unknown path should set as its base URL, or null when that is not what is wrong: one that ends
 * in `/v1` below a client that adds it, or one that lacks it. `publicUrl` has no slash at its end; the Host header is
 * never asked.
 */
export function baseUrlAdvice(target: string, publicUrl: string): string | null {
  const path = pathOnly(target);
  // A path is shown only where it is one that a client makes by itself.
  const shown = /^[/\w.-]{1,100}$/.test(path) ? path : 'with /v1/v1';
  if (path.startsWith('/v1/v1/'))
    return `Unknown path ${shown}: your base URL already ends in /v1. The client adds /v1 itself, as the Anthropic SDK does: set its base URL to ${publicUrl}.`;
  const area = path.split('/')[1] ?? '';
  if (!AREAS.has(area) || shown !== path) return null;
  return `Unknown path ${shown}: your base URL lacks /v1. Set it to ${publicUrl}/v1.`;
}
