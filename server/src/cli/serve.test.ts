import { expect, it } from 'vitest';
import { linksGoNowhere } from './serve.ts';

it.each([
  ['127.0.0.1', null, false],
  ['127.8.0.1', null, false],
  ['localhost', null, false],
  ['::1', null, false],
  ['0.0.0.0', null, true],
  ['::', null, true],
  ['10.0.0.5', null, true],
  ['127.evil.example', null, true],
  ['0.0.0.0', 'https://sluice.example.com', false],
])('listening on %s with the public address %s warns about its links: %s', (host, publicUrl, warns) => {
  expect(linksGoNowhere({ host, publicUrl })).toBe(warns);
});
