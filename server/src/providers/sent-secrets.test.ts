import { expect, it } from 'vitest';
import { cpu } from '../../test/support/cost.ts';
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

it('a key is found however JSON writes its characters, and what is written around it stays', () => {
  const key = 'pk/A"b\\c\nd';
  const once = JSON.stringify(key).slice(1, -1);
  const spelled = [...key]
    .map((char) => `\\u${char.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}`)
    .join('');
  for (const written of [once, once.replace('/', '\\/'), spelled, JSON.stringify(spelled).slice(1, -1)]) {
    expect(withoutSecrets(`{"a":"x\\n${written}\\ty"}`, [key])).toBe('{"a":"x\\n***\\ty"}');
  }
  expect(withoutSecrets('{"a":"pk\\/other \\u0041"}', [key])).toBe('{"a":"pk\\/other \\u0041"}');
});

it('every key of a text is hidden, however many stand in it and in whatever order', () => {
  const keys = ['pk/first-1', 'pk/the-second-2', 'pk/3rd-one-3'];
  const spelled = (key: string) => key.replace('/', '\\/').replace('-', '\\u002d');
  for (const order of [
    [0, 1, 2],
    [2, 1, 0],
    [1, 1, 0, 2, 1],
  ]) {
    const said = order.map((i) => `say \\"${spelled(keys[i] ?? '')}\\"`).join(' and ');
    const shown = order.map(() => 'say \\"***\\"').join(' and ');
    expect(withoutSecrets(`{"a":"${said}","b":1}`, keys)).toBe(`{"a":"${shown}","b":1}`);
  }
});

it('a text of backslashes alone, or of half a key again and again, is read in time that grows with its length', () => {
  const time = (text: string) => {
    const before = cpu();
    expect(withoutSecrets(text, ['\\sk/"slash-key', '/path-key-1234'])).toBe(text);
    return cpu() - before;
  };
  // A second reading of every run would take minutes here.
  expect(time('\\'.repeat(1_000_000))).toBeLessThan(5000);
  expect(time('\\sk\\\\'.repeat(200_000))).toBeLessThan(5000);
});
