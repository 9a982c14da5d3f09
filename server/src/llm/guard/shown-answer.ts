import { withoutSecrets } from '../../providers/sent-secrets.ts';
import { isJson } from '../relay/response-inspection.ts';
import { tellsError } from '../relay/tells-error.ts';

/** An answer as its caller may see it: where it tells of an error, it may repeat a secret. The same Buffer where it does not. */
export function shownAnswer(
  came: Buffer,
  { headers, secrets }: { readonly headers: readonly string[]; readonly secrets: readonly string[] },
): Buffer {
  if (secrets.length === 0 || !isJson(headers) || !tellsError(came)) return came;
  const text = came.toString('utf8');
  const shown = withoutSecrets(text, secrets);
  return shown === text ? came : Buffer.from(shown);
}
