/**
 * Who refers to what. The resource that refers declares it (`refers` in its spec); the catalogue collects all of them, and
 * the administration handler asks them before a delete, so that the resource that deletes knows nothing of the others.
 */
import { SluiceError } from '../kernel/errors.ts';
import type { TenantTx } from '../store/ports.ts';
import type { TenantTable } from '../store/schema.ts';

/** The object that is about to go. */
export interface ReferredTo {
  readonly table: TenantTable;
  readonly id: string;
  readonly slug: string;
  /** Workspace the object lives in, or is; null for an object of the organisation. */
  readonly workspaceId: string | null;
}

/** Something that refers to it. */
export interface Reference {
  /** What it is, as a caller would say it: `shared prompt`, `partial`, `workspace default`. */
  readonly kind: string;
  readonly id: string;
  readonly name: string;
}

/** That objects of one resource name those of another. */
export interface Refers {
  /** What they name. */
  readonly to: TenantTable;
  /** What of this resource names the object; empty when nothing does. */
  find(tx: TenantTx, to: ReferredTo): Promise<readonly Reference[]>;
}

/** Asks each that refers to such objects, in turn. */
export async function findReferences(
  all: readonly Refers[],
  tx: TenantTx,
  to: ReferredTo,
): Promise<readonly Reference[]> {
  const found: Reference[] = [];
  for (const refers of all) if (refers.to === to.table) found.push(...(await refers.find(tx, to)));
  return found;
}

/** Throws 409 with what `message` says of the references, while there are any. */
export async function refuseWhileReferredTo(
  call: { references(to: ReferredTo): Promise<readonly Reference[]> },
  to: ReferredTo,
  message: (first: Reference, all: readonly Reference[]) => string,
): Promise<void> {
  const all = await call.references(to);
  const [first] = all;
  if (first !== undefined) throw new SluiceError('conflict', message(first, all));
}
