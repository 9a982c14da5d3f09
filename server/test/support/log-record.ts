import type { StoredLog } from '../../src/store/ports.ts';

/** A record with the fields of `telemetry/record.ts` that readers look at, and some that are only kept. */
export function logRecord(seq: number, more: Record<string, unknown> = {}): StoredLog {
  return {
    id: `id-${seq}`,
    node: 'node-1',
    seq,
    time: 1_000 + seq,
    organisation_id: 'org-a',
    workspace_id: 'ws-a1',
    trace_id: `trace-${seq}`,
    status: 200,
    metadata: { _user: 'é "quoted"' },
    attempts: [
      {
        target: 'a',
        provider: 'openai',
        status: 200,
        error: null,
        cause: { kind: 'status', code: null, message: 'é' },
        began_ms: 0.125,
        queued_ms: 0,
        duration_ms: 1.25,
      },
    ],
    source: 'llm',
    span_name: 'é "quoted"',
    mode: 'fallback',
    option: 'config.targets[1]',
    retries: 0,
    fallback: true,
    upstream_us: 1_250,
    gateway_us: 125,
    client: { sdk: 'openai-js', sdk_version: '6.1.0', address: 'loopback' },
    body_chunk: '01890000-0000-7000-8000-00000000000c',
    body_slot: 3,
    body_flags: 1,
    model_sent: 'm',
    guards: { input: ['pii'], output: [] },
    ...more,
  };
}
