import type { Migration } from './migration.ts';

/** Keys of users that somebody else has made with bounds are bounded by their maker. */
export const keyBounds: Migration = {
  name: '0011-key-bounds',
  statements: (types) => [
    `ALTER TABLE api_keys ADD COLUMN bounded_by ${types.text}`,
    `UPDATE api_keys SET bounded_by = created_by
WHERE type = 'workspace-user' AND status <> 'archived' AND creation_mode <> 'auto' AND created_by <> user_id
AND (usage_limits IS NOT NULL OR rate_limits IS NOT NULL OR expires_at IS NOT NULL OR defaults LIKE '%config_id%' OR defaults LIKE '%"allow_config_override":false%')`,
    `CREATE INDEX api_keys_bounded ON api_keys (organisation_id, workspace_id, user_id) WHERE bounded_by IS NOT NULL`,
  ],
};
