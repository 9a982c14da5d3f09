import { createHash } from 'node:crypto';
import { type AwsKeys, type AwsScope, awsSigned } from '../../kernel/sigv4.ts';
import type { AdapterRequest } from '../training.ts';

export type { AwsKeys, AwsScope };

export const sha256Hex = (body: Buffer | string): string => createHash('sha256').update(body).digest('hex');

/** The request with Signature V4; its body is a buffer and never a stream, so that nothing goes out unsigned. */
export async function signed(
  request: Omit<AdapterRequest, 'body'> & { readonly body: Buffer | null },
  keys: AwsKeys,
  scope: AwsScope,
  now: number,
): Promise<AdapterRequest> {
  const { method, url, body } = request;
  const headers: Record<string, string> = {};
  for (let i = 0; i < request.headers.length; i += 2) headers[request.headers[i] ?? ''] = request.headers[i + 1] ?? '';
  const made = await awsSigned({ method, url, headers, body }, keys, scope, now);
  return { ...request, headers: Object.entries(made).flat() };
}
