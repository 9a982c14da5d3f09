import { expect, it } from 'vitest';
import type { StoredLog } from '../../store/ports.ts';
import { readEvent } from './event.ts';

const RECORD = {
  id: 'r',
  time: 1,
  organisation_id: 'o',
  workspace_id: 'w',
  trace_id: 't',
  operation: 'echo',
  method: 'POST',
  path: '/echo',
  bytes_in: 9,
  outcome: 'ok',
  usage: null,
  cost_micros: 5,
  latency_ms: 1,
  attempts: [],
  metadata: null,
  dry_run: false,
  limits: {},
};
const kinds = (record: object) =>
  (['rate', 'usage'] as const).filter((kind) => readEvent(record as unknown as StoredLog, kind) !== null);

it('a simulated rate policy of models counts no calls of other planes; a usage policy counts them all', () => {
  expect(kinds(RECORD)).toEqual(['rate', 'usage']);
  expect(kinds({ ...RECORD, source: 'echo' })).toEqual(['usage']);
});
