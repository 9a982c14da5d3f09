import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { record } from '../../llm/steps/record.ts';
import { createRecorder, type RecordDraft } from '../../telemetry/recorder.ts';
import { logRecord } from '../conformance/logs.ts';
import { carefully, quickly } from './log-insert.ts';

/** A line as the data plane writes it, with `more` in place of what the request held. */
function written(more: Record<string, unknown> = {}): string {
  let line = '';
  const recorder = createRecorder('node-1', {
    failing: false,
    append(text, _done, tail = '') {
      line = text + tail;
    },
  });
  const x = testExchange(
    { url: '/v1/chat/completions?x=1' },
    {
      accessLog: null,
      recorder: { record: (draft: RecordDraft, done: () => void) => recorder.record({ ...draft, ...more }, done) },
    },
  );
  Object.assign(x.request, {
    id: 'id-7',
    time: 1007,
    principal: { organisationId: 'org-a', workspaceId: 'ws-a1', keyId: null, userId: 'u' },
    traceId: 'trace-7',
    metadata: { _user: 'é "quoted"' },
    model: 'm',
  });
  // Only what the record is made of; the journal never says that it is done, so nothing is answered.
  x.clientGone = true;
  void record(x);
  return line;
}

describe('columns of a log record', () => {
  it('are read without parsing when the recorder wrote the line', () => {
    expect(quickly(written())).toEqual(['node-1', 1, 'id-7', 1007, 'org-a', 'ws-a1', 'trace-7']);
  });

  it('are read by parsing when fields stand in another order', () => {
    const line = JSON.stringify(logRecord(7));
    expect(quickly(line)).toBeNull();
    expect(carefully(line)).toEqual(['node-1', 7, 'id-7', 1007, 'org-a', 'ws-a1', 'trace-7']);
  });

  it('no text that a caller chose moves a record to another tenant', () => {
    const text = fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom(
        '","node":"evil","seq":9}',
        '"organisation_id":"evil",',
        '\\',
        '"',
        '{"id":"x","time":1,"organisation_id":"evil"',
        '\\","workspace_id":"evil","x":"',
      ),
    );
    const more = fc.record(
      {
        id: text,
        trace_id: text,
        organisation_id: fc.option(text),
        workspace_id: fc.option(text),
        user_id: fc.option(text),
        path: text,
        error_message: text,
        metadata: fc.dictionary(text, text),
        zz: fc.json().map((inner) => ({ inner, node: 'evil', seq: 1 })),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(more, (given) => {
        const line = written(given);
        const quick = quickly(line);
        if (quick !== null) expect(quick).toEqual(carefully(line));
      }),
      { numRuns: 1_000 },
    );
  }, 60_000);

  it('are read by parsing, or refused, for anything that is not such a line', () => {
    const line = written();
    fc.assert(
      fc.property(fc.nat(line.length - 1), fc.string(), (at, instead) => {
        const damaged = line.slice(0, at) + instead + line.slice(at + 1);
        const quick = quickly(damaged);
        let careful: unknown;
        try {
          careful = carefully(damaged);
        } catch {
          return;
        }
        if (quick !== null) expect(quick).toEqual(careful);
      }),
      { numRuns: 2_000 },
    );
    for (const bad of ['', '{}', 'null', '[]', '{"id":"a"}']) expect(quickly(bad)).toBeNull();
  });
});
