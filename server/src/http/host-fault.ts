import { SluiceError } from '../kernel/errors.ts';
import type { EgressGuard } from './egress-guard.ts';

/** What is wrong with a host that is about to be saved, or null: the text rules of the guard, without a credential. */
export function hostFault(
  egress: EgressGuard,
  url: string,
  rules: { readonly httpsOnly?: boolean } = {},
): string | null {
  try {
    egress.check(url, { storedCredential: false, ...rules });
    return null;
  } catch (error) {
    if (error instanceof SluiceError) return error.message;
    throw error;
  }
}
