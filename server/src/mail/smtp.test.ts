import { expect, it } from 'vitest';
import { Secret } from '../kernel/secret.ts';
import { needsTls } from './smtp.ts';

const login = { user: 'user', password: new Secret('password') };

it.each([
  ['mail.example.com', false, true],
  ['10.0.0.5', false, true],
  ['127.evil.example', false, true],
  ['localhost.example', false, true],
  ['mail.example.com', true, false],
  ['localhost', false, false],
  ['127.0.0.1', false, false],
  ['::1', false, false],
])('a login to %s (TLS from the start: %s) needs STARTTLS: %s', (host, secure, needed) => {
  expect(needsTls({ host, secure, login })).toBe(needed);
  expect(needsTls({ host, secure, login: null })).toBe(false);
});
