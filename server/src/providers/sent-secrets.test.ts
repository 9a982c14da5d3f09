import { expect, it } from 'vitest';
import { Secret } from '../kernel/secret.ts';
import { secretsOf, withoutSecrets } from './sent-secrets.ts';

it('what an account sends to prove itself is found in a text, whichever way it is stored, and nothing else', () => {
  const settings = {
    opened_secret: new Secret('opened-secret-1'),
    plain_secret: 'plain-secret-2',
    key_file: { private_key: 'line 1\nprivate-key-3', project_id: 'project-of-ours' },
    region: 'a-region-to-tell',
  };
  const secrets = secretsOf(
    { key: new Secret('account-key-4'), settings },
    ['x-team', 'team-of-ours', 'authorization', 'Bearer custom-token-5', 'x-pin-token', '1234'],
    ['opened_secret', 'plain_secret', 'key_file'],
  );
  const text = JSON.stringify([
    ...['opened-secret-1', 'plain-secret-2', 'line 1\nprivate-key-3', 'account-key-4', 'custom-token-5'],
    ...['project-of-ours', 'a-region-to-tell', 'team-of-ours', '1234'],
  ]);
  expect(JSON.parse(withoutSecrets(text, secrets))).toEqual([
    ...['***', '***', '***', '***', '***'],
    ...['project-of-ours', 'a-region-to-tell', 'team-of-ours', '1234'],
  ]);
});
