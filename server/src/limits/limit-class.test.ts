import { describe, expect, it } from 'vitest';
import { OPERATIONS } from '../operations/operation.ts';
import type { StoredLog } from '../store/ports.ts';
import { limitClassOf } from './limit-class.ts';
import { readEvent } from './simulation/event.ts';

const passed = (method: string, path: string, empty = true) => limitClassOf(OPERATIONS.proxy, method, path, empty);

describe('what a request is for', () => {
  it('of what is passed through, only what cannot ask for an answer ends something', () => {
    expect(passed('GET', '/v1/threads')).toBe('reads');
    expect(passed('DELETE', '/v1/threads/t')).toBe('ends');
    expect(passed('POST', '/v1/responses/resp_1/cancel')).toBe('ends');
    expect(passed('POST', '/v1/messages/batches/b-1/cancel')).toBe('ends');
    for (const path of [
      '/v1/chat/cancelled',
      '/v1/x/../cancel',
      '/v1/x/%2e%2e/cancel',
      '/v1/x;/cancel',
      '/v1/x#/cancel',
    ]) {
      expect([path, passed('POST', path)]).toEqual([path, 'uses']);
    }
    expect(passed('POST', '/v1/responses/resp_1/cancel', false)).toBe('uses');
    expect(passed('PUT', '/v1/responses/resp_1/cancel')).toBe('uses');
  });

  it('what begins or goes on with work uses', () => {
    const uses = Object.values(OPERATIONS).filter(
      (operation) => limitClassOf(operation, operation.method, '', true) === 'uses',
    );
    const ids = new Set(uses.map(({ id }) => id));
    for (const id of ['chat', 'batch_create', 'finetune_create', 'finetune_resume', 'files_upload'] as const) {
      expect([id, ids.has(id)]).toEqual([id, true]);
    }
  });

  it('a simulation leaves out what no limit would be asked for', () => {
    const record = (operation: string, method: string, path: string) =>
      ({
        id: 'r',
        time: 1,
        organisation_id: 'o',
        workspace_id: 'w',
        operation,
        method,
        path,
        bytes_in: 0,
        outcome: 'ok',
        usage: null,
        cost_micros: 0,
        latency_ms: 1,
        attempts: [{}],
        metadata: null,
        dry_run: false,
      }) as unknown as StoredLog;
    const counted = (stored: StoredLog) =>
      (['rate', 'usage'] as const).filter((kind) => readEvent(stored, kind) !== null);
    expect(counted(record('chat', 'POST', '/v1/chat/completions'))).toEqual(['rate', 'usage']);
    expect(counted(record('batch_cancel', 'POST', '/v1/batches/b/cancel'))).toEqual(['rate']);
    expect(counted(record('file_delete', 'DELETE', '/v1/files/f'))).toEqual(['rate']);
    expect(counted(record('proxy', 'POST', '/v1/responses/r/cancel'))).toEqual(['rate']);
    expect(counted(record('batches', 'GET', '/v1/batches'))).toEqual([]);
    expect(counted(record('proxy', 'GET', '/v1/threads'))).toEqual([]);
  });
});
