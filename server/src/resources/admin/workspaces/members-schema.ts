/** Bodies, queries and answers of workspace members. */
import { z } from 'zod';
import { tenantFields, userEmail, uuid } from '../../fields.ts';

const organisation = { organisation_id: tenantFields.organisation_id };
const role = z.enum(['admin', 'manager', 'member']);

export const addBody = z.strictObject({
  ...organisation,
  users: z
    .array(z.strictObject({ id: uuid, role }))
    .min(1)
    .max(100)
    .superRefine((value, context) => {
      const ids = value.map((entry) => entry.id);
      for (const [index, id] of ids.entries()) {
        if (ids.indexOf(id) !== index) {
          context.addIssue({
            code: 'custom',
            path: [index, 'id'],
            message: 'names a user that the list names already',
          });
        }
      }
    }),
});

export const roleBody = z.strictObject({ ...organisation, role });

export type AddBody = z.output<typeof addBody>;
export type RoleBody = z.output<typeof roleBody>;

export const membersQuery = z.object({
  role: role.optional(),
  email: userEmail.optional(),
});

const time = z.iso.datetime();

export const memberAnswer = z.object({
  object: z.literal('workspace-user'),
  id: z.string().describe('Id of the user.'),
  first_name: z.string(),
  last_name: z.string(),
  email: z.string(),
  org_role: z.enum(['owner', 'admin', 'member']),
  role,
  status: z.enum(['active', 'archived']),
  workspace_id: z.string(),
  sources: z
    .array(
      z.object({
        type: z.enum(['manual', 'invite', 'sso', 'scim']),
        id: z.string().nullable().describe('The SSO client, or the SCIM group.'),
        role,
      }),
    )
    .describe('What gives the membership: the highest role counts, and it ends with the last of them.'),
  scopes: z.array(z.string()).describe('The user’s rights in this workspace.'),
  settings: z.null(),
  created_at: time,
  last_updated_at: time,
});
