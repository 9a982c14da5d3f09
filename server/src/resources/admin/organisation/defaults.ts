/** Guardrails that run in every workspace of an organisation: `GET` and `PUT /admin/organisation/defaults`. */
import { z } from 'zod';
import type { TenantTx } from '../../../store/ports.ts';
import type { Row } from '../../../store/schema.ts';
import { refuse } from '../../common.ts';
import { reference, tenantFields } from '../../fields.ts';
import type { GuardrailName, organisationGuardrails } from '../../guardrails/rules.ts';
import { singleton } from '../../kinds/singleton.ts';
import type { AnyAction } from '../../resource.ts';
import { part } from '../../settings/section.ts';

const MAX_GUARDRAILS = 100;
const DIRECTIONS = ['input_guardrails', 'output_guardrails'] as const;

const named = z.array(z.object({ id: z.string(), slug: z.string() }));
const answer = z.object({
  object: z.literal('organisation-defaults'),
  input_guardrails: named,
  output_guardrails: named,
});

const list = z
  .array(reference)
  .max(MAX_GUARDRAILS)
  .optional()
  .describe('Ids or slugs; replaces the list, and [] empties it.');
const { organisation_id } = tenantFields;
const body = z.strictObject({ organisation_id, input_guardrails: list, output_guardrails: list });

/** What the row holds: ids of guardrails, by direction. */
type Stored = { -readonly [K in (typeof DIRECTIONS)[number]]: readonly string[] };

function storedDefaults(organisation: Row<'organisations'>): Stored {
  const defaults = part(organisation.settings, 'defaults');
  const ids = (key: keyof Stored) => (Array.isArray(defaults[key]) ? (defaults[key] as string[]) : []);
  return { input_guardrails: ids('input_guardrails'), output_guardrails: ids('output_guardrails') };
}

/** @param guardrails says which guardrails may stand for a whole organisation */
export function organisationDefaults(guardrails: {
  readonly organisationGuardrails: typeof organisationGuardrails;
}): AnyAction[] {
  /** The stored ids as they are now; a guardrail that has gone since is left out. */
  async function present(tx: TenantTx, stored: Stored) {
    const found = await guardrails.organisationGuardrails(tx, [
      ...stored.input_guardrails,
      ...stored.output_guardrails,
    ]);
    const byId = new Map(found.map((entry) => [entry.id, entry]));
    const names = (ids: readonly string[]) =>
      ids.flatMap((id): GuardrailName[] => {
        const entry = byId.get(id);
        return entry === undefined ? [] : [{ id: entry.id, slug: entry.slug }];
      });
    return {
      object: 'organisation-defaults' as const,
      input_guardrails: names(stored.input_guardrails),
      output_guardrails: names(stored.output_guardrails),
    };
  }

  /** Ids of a list as it was given. Throws 400 that names the entry. */
  async function resolve(tx: TenantTx, field: keyof Stored, names: readonly string[]): Promise<string[]> {
    const found = await guardrails.organisationGuardrails(tx, names);
    const ids: string[] = [];
    for (const [index, name] of names.entries()) {
      const param = `${field}[${index}]`;
      const entry = found.find(({ id }) => id === name.toLowerCase()) ?? found.find(({ slug }) => slug === name);
      if (entry === undefined) {
        throw refuse(
          param,
          'names no active guardrail of the organisation itself whose target is llm; GET /v1/guardrails lists them',
        );
      }
      if (ids.includes(entry.id)) throw refuse(param, 'repeats a guardrail of the list');
      ids.push(entry.id);
    }
    return ids;
  }

  return singleton({
    name: 'organisation.defaults',
    tag: 'Organisation',
    path: '/admin/organisation/defaults',
    scopes: 'organisation_settings',
    query: z.strictObject({ organisation_id }),
    resource: 'organisation_defaults',
    read: {
      summary: 'Get the default guardrails of the organisation',
      response: answer,
      run: async ({ tx }) => present(tx, storedDefaults(await tx.organisation())),
    },
    update: {
      summary: 'Set the default guardrails of the organisation',
      description:
        'A list in the body replaces the stored one; a list that is left out stays. Workspaces can be exempted ' +
        'with /workspace-exclusions.',
      body,
      response: answer,
      run: async (call) => {
        const { tx } = call;
        const organisation = await tx.organisation();
        const before = storedDefaults(organisation);
        const after = { ...before };
        for (const field of DIRECTIONS) {
          const names = call.body[field];
          if (names !== undefined) after[field] = await resolve(tx, field, names);
        }
        const settings = { ...organisation.settings, defaults: after };
        await tx.updateOrganisation({ settings, last_updated_at: call.clock.now() });
        tx.changed({ workspaceId: null, topic: 'organisations', entityId: organisation.id });
        const shown = await present(tx, after);
        call.audit(organisation.id, { before: await present(tx, before), after: shown });
        return shown;
      },
    },
  });
}
