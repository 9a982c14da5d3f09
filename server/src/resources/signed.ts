/** Values that this installation has signed: it knows its own again, and nobody else can make one. */
import { timingSafeEqual } from 'node:crypto';
import type { Macs } from '../store/vault.ts';

const TOKEN = /^([A-Za-z0-9_-]{1,800})\.([A-Za-z0-9_-]{1,64})\.([A-Za-z0-9_-]{43})$/;

/** @param use a fixed name that keeps signatures of different purposes apart */
export function signValue(macs: Macs, use: string, value: object): string {
  const payload = Buffer.from(JSON.stringify(value)).toString('base64url');
  const made = macs.mac(use, Buffer.from(payload));
  return `${payload}.${made.keyId}.${made.digest.toString('base64url')}`;
}

/** The value in a token of `signValue` for the same use; null for any other token. */
export function openSigned(macs: Macs, use: string, token: string): unknown {
  const [, payload = '', keyId = '', given = ''] = TOKEN.exec(token) ?? [];
  const made = payload === '' ? null : macs.mac(use, Buffer.from(payload), keyId);
  const bytes = Buffer.from(given, 'base64url');
  if (made === null || bytes.length !== made.digest.length || !timingSafeEqual(bytes, made.digest)) return null;
  return JSON.parse(Buffer.from(payload, 'base64url').toString('utf8'));
}
