import type { SluiceError } from '../kernel/errors.ts';
import { nearest } from '../kernel/nearest.ts';
import { refuseIssues } from './common.ts';

/**
 * 400 for scopes that keys of a kind cannot have, each with the one that was most likely meant; null when there are none.
 *
 * @param path of the list in the body
 * @param kind as people read it: `workspace-service keys`
 */
export function unknownScopes(
  scopes: readonly string[],
  known: ReadonlySet<string>,
  path: string,
  kind: string,
): SluiceError | null {
  const issues = scopes.flatMap((scope, i) => {
    if (known.has(scope)) return [];
    const meant = nearest(scope, known);
    const hint = meant === null ? '' : `; did you mean ${meant}?`;
    const where = 'docs/guides/scopes.md lists the scopes of each kind of key.';
    return [{ path: `${path}[${i}]`, message: `is not a scope of ${kind}${hint === '' ? '.' : hint} ${where}` }];
  });
  return issues.length === 0 ? null : refuseIssues('', issues);
}
