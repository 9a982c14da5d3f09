import { SluiceError } from '../kernel/errors.ts';
import { OPERATIONS, type OperationId } from '../operations/operation.ts';
import type { CallContext } from './provider.ts';

/** One path segment, encoded; what RFC 3986 allows in a segment stays as it is (`gpt-4o:ft`, `@cf`). */
export function segment(value: string): string {
  return encodeURIComponent(value).replace(/%(3A|40|2C|3B|3D|2B|24|26)/g, (code) => decodeURIComponent(code));
}

/** Every segment of the rest of a pass-through path. Dot segments would leave the provider's base path. */
export function restOfPath(rest: string): string {
  const parts = rest.split('/');
  for (const part of parts) {
    if (part === '.' || part === '..') {
      throw new SluiceError('malformed_call', 'The path must not contain "." or ".." segments.');
    }
  }
  return `/${parts.map(segment).join('/')}`;
}

/** Path of an operation below the base URL, the same as below our own `/v1`, unless `override` names another. */
export function operationPath(operation: OperationId, override?: string): (context: CallContext) => string {
  const path = override ?? OPERATIONS[operation].path;
  if (path === '/*') return (context) => restOfPath(context.pathParams['*'] ?? '');
  if (!path.includes(':')) return () => path;
  const parts = path.split('/');
  return (context) =>
    parts.map((part) => (part.startsWith(':') ? segment(context.pathParams[part.slice(1)] ?? '') : part)).join('/');
}
