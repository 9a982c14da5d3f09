import type { Row } from '../schema.ts';

/** A destination, whosever it is, and what a node says of it. */
export const LOG_DESTINATION = {
  name: 'Warehouse',
  kind: 'webhook',
  enabled: true,
  settings: { url: 'https://receiver.example' },
  secrets: 'sealed',
  filters: { ai_model: 'gpt-4o' },
  fields: ['id'],
  bodies: false,
  sample: 1_000_000,
  start_at: 1,
  created_by: null,
  updated_by: null,
} satisfies Partial<Row<'log_destinations'>>;

export const LOG_DESTINATION_FEED = {
  node: 'node',
  delivered: 1,
  failed: 0,
  lost: 0,
  waiting: 0,
  lag_ms: 0,
  backfilling: false,
  delivered_at: null,
  error: null,
  last_updated_at: 1,
  mark: null,
  handed: null,
  taken_by: null,
  taken_until: null,
} satisfies Partial<Row<'log_destination_feeds'>>;

/** The same of one tenant. */
export function logDestinationRows(
  name: string,
  inside: Pick<Row<'log_destinations'>, 'organisation_id'> & { readonly workspace_id: string },
  at: Pick<Row<'log_destinations'>, 'created_at' | 'last_updated_at'>,
) {
  const id = `${name}-destination`;
  const { organisation_id } = inside;
  return {
    log_destinations: { id, ...inside, ...LOG_DESTINATION, ...at },
    log_destination_feeds: { organisation_id, destination_id: id, ...LOG_DESTINATION_FEED },
  };
}
