import type { Migration, Types } from './migration.ts';

/**
 * Rotation policies from before rotations were carried out become due on their day. A day that passed while nothing
 * rotated, or is within the week, becomes a week from now: no notice said that the key would be replaced.
 */
export const dueRotations: Migration = { name: '0005-due-rotations', statements };

function statements({ engine }: Types): string[] {
  const [planned, now, later] =
    engine === 'sqlite'
      ? [
          `CAST(strftime('%s', json_extract(rotation_policy, '$.next_rotation_at')) AS INTEGER) * 1000`,
          `CAST(strftime('%s', 'now') AS INTEGER) * 1000`,
          'max',
        ]
      : [
          `CAST(extract(epoch from CAST(CAST(rotation_policy AS json) ->> 'next_rotation_at' AS timestamptz)) * 1000 AS bigint)`,
          'CAST(floor(extract(epoch from now())) * 1000 AS bigint)',
          'greatest',
        ];
  return [
    `UPDATE api_keys SET rotation_due_at = ${later}(${planned}, ${now} + ${7 * 86_400_000})
WHERE rotation_policy IS NOT NULL AND rotation_due_at IS NULL AND status <> 'archived'`,
  ];
}
