import type { Row } from '../schema.ts';

/** An erasure of stored requests that is done, whosever it is. */
export const LOG_ERASURE = {
  selects: 'end_user',
  subject: null,
  before: 1_700_000_000_000,
  status: 'done',
  nodes: { node: { records: 2, bodies: 1, feedback: 0, damaged_files: 0, done: true } },
  exports: [],
  done_at: 1_700_000_000_000,
  created_by: null,
} satisfies Partial<Row<'log_erasures'>>;
