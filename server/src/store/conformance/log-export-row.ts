import type { Row } from '../schema.ts';

/** A draft of an export of logs, whosever it is. */
export const LOG_EXPORT = {
  user_id: null,
  filters: { ai_model: 'gpt-4o' },
  requested_data: ['id'],
  format: 'jsonl',
  whole: false,
  bom: false,
  description: 'Requests of yesterday',
  status: 'draft',
  error: null,
  total: 0,
  runs: 0,
  started_at: 0,
  covers: null,
  parts: [],
  place: null,
  incomplete: [],
  expires_at: null,
  step: 'done',
  cancel_requested: false,
  failures: 0,
  due_at: Number.MAX_SAFE_INTEGER,
  holder: null,
  held_until: 0,
  created_by: null,
} satisfies Partial<Row<'log_exports'>>;

/** An erasure of stored requests that is done, whosever it is. */
export const LOG_ERASURE = {
  selects: 'end_user',
  subject: null,
  before: 1_700_000_000_000,
  status: 'done',
  nodes: { node: { records: 2, bodies: 1, feedback: 0, damaged_files: 0, done: true } },
  rewritten_at: null,
  exports: [],
  destinations: [],
  done_at: 1_700_000_000_000,
  created_by: null,
} satisfies Partial<Row<'log_erasures'>>;
