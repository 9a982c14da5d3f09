/**
 * Objects of two levels, in one table: those of the organisation (`workspace_id` null) and those of a workspace. Each level
 * has its own scopes; a route admits the scope of either, and the object decides which one is needed.
 */
import { SluiceError } from '../../kernel/errors.ts';
import type { ItemVerb } from '../calls.ts';
import { refuse, workspaceOf } from '../common.ts';
import type { Call } from '../resource.ts';

export type Level = 'organisation' | 'workspace';
export type LevelVerb = ItemVerb | 'list' | 'create';

interface Levelled {
  readonly workspace_id: string | null;
}

/** Conditions on the rows of a levelled table. */
export interface LevelWhere {
  readonly workspace_id?: string | null | { readonly not: null };
  readonly id?: { readonly in: readonly string[] };
}

export const levelOf = (row: Levelled): Level => (row.workspace_id === null ? 'organisation' : 'workspace');

export class Levels {
  readonly #prefixes: Readonly<Record<Level, string>>;

  /** @param prefixes of the scopes of each level, such as `organisation_guardrails`; refusals name them in this order */
  constructor(prefixes: Readonly<Record<Level, string>>) {
    this.#prefixes = prefixes;
  }

  /** For `ResourceSpec.scopes`. */
  get scopes(): readonly string[] {
    return Object.values(this.#prefixes);
  }

  holds(call: Call, level: Level, verb: LevelVerb): boolean {
    return call.principal.scopes.has(`${this.#prefixes[level]}.${verb}`);
  }

  /** 403 unless the caller holds the scope for this level. */
  require(call: Call, level: Level, verb: LevelVerb): void {
    if (this.holds(call, level, verb)) return;
    const scope = `${this.#prefixes[level]}.${verb}`;
    throw new SluiceError('forbidden', `This needs the scope ${scope}, which your credential does not have.`);
  }

  /** Rows of the levels whose scope the caller holds; `only` narrows to one of them. */
  held(call: Call, verb: LevelVerb, only: Level | null = null): LevelWhere {
    const levels = (['organisation', 'workspace'] as const).filter(
      (level) => this.holds(call, level, verb) && (only === null || only === level),
    );
    if (levels.length === 0) return { id: { in: [] } };
    if (levels.length === 2) return {};
    return { workspace_id: levels[0] === 'organisation' ? null : { not: null } };
  }

  /**
   * Where a new object goes: the workspace that the caller names or is bound to, else the organisation. Throws 403 without the
   * scope of that level, and 400 where `explicit` ("a guardrail") objects of the organisation need `organisation_id`.
   */
  async place(call: Call, explicit: string | null = null): Promise<string | null> {
    const workspaceId = await workspaceOf(call);
    if (workspaceId === null && explicit !== null && !namesOrganisation(call.body)) {
      throw refuse('workspace_id', `is required, or organisation_id for ${explicit} of the whole organisation`);
    }
    this.require(call, workspaceId === null ? 'organisation' : 'workspace', 'create');
    return workspaceId;
  }
}

const namesOrganisation = (body: unknown): boolean =>
  typeof body === 'object' && body !== null && (body as { organisation_id?: unknown }).organisation_id !== undefined;
