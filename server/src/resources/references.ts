/**
 * Who refers to what, asked before something is deleted. A resource that can stand in the way of a delete exports a
 * `FindReferences`; `catalog.ts` lists them, and the administration handler is given the list, so that the resource that
 * deletes knows nothing of those that refer.
 */
import type { TenantTx } from '../store/ports.ts';

/** The object that is about to go. `name` is its slug. */
export interface ReferredTo {
  readonly table: 'workspaces' | 'configs' | 'guardrails';
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

/** Answers what of one resource refers to the object; empty when nothing does. */
export type FindReferences = (tx: TenantTx, to: ReferredTo) => Promise<readonly Reference[]>;

/** Asks each in turn. */
export async function findReferences(
  all: readonly FindReferences[],
  tx: TenantTx,
  to: ReferredTo,
): Promise<readonly Reference[]> {
  const found: Reference[] = [];
  for (const find of all) found.push(...(await find(tx, to)));
  return found;
}
