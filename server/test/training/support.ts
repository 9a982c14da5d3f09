/** What the tests of training adapters share. */

import type { Readable } from 'node:stream';
import type { ProviderSaid, SluiceError } from '../../src/kernel/errors.ts';
import { said } from '../../src/operations/dialects/errors.ts';
import type { Page, PageRequest } from '../../src/operations/training.ts';

/** The value at a dotted path. */
export function valueAt(body: unknown, path: string): unknown {
  let value = body;
  for (const name of path.split('.')) value = (value as Record<string, unknown> | undefined)?.[name];
  return value;
}

export async function textOf(stream: Readable): Promise<string> {
  const parts: Buffer[] = [];
  for await (const part of stream as AsyncIterable<Buffer>) parts.push(part);
  return Buffer.concat(parts).toString('utf8');
}

/** What was thrown, by what a caller sees of it. */
export async function refusal(
  call: () => unknown,
): Promise<Pick<SluiceError, 'kind' | 'param' | 'message' | 'retryAfter'> & ProviderSaid> {
  try {
    await call();
  } catch (error) {
    const { kind, param, message, retryAfter } = error as SluiceError;
    return { ...said(error as SluiceError), kind, param, message, retryAfter };
  }
  throw new Error('nothing was refused');
}

/** Ids of a whole list, walked in pages. */
export async function walk<T extends { readonly id: string }>(
  list: (page: PageRequest) => Promise<Page<T>>,
  limit: number,
): Promise<string[]> {
  const ids: string[] = [];
  let after: string | null = null;
  for (let pages = 0; pages < 400; pages++) {
    const page: Page<T> = await list({ after, limit });
    ids.push(...page.data.map((one) => one.id));
    if (!page.has_more) return ids;
    after = page.data.at(-1)?.id ?? null;
  }
  throw new Error('the list has no end');
}
