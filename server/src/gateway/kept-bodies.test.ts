import { describe, expect, it } from 'vitest';
import { callerWith, workspaceWith } from '../../test/support/caller.ts';
import { type BodyRule, isDebugOff, keptBodies } from './kept-bodies.ts';

interface Case {
  readonly rule?: BodyRule;
  readonly key?: 0 | 1;
  /** What the snapshot says: of the workspace, else of the organisation. */
  readonly place?: 0 | 1;
  readonly header?: string;
  readonly sample?: number;
  readonly trace?: string;
}

const decided = ({ rule = 'allowed', key, place = 0, header, sample = 1, trace = 't' }: Case) =>
  keptBodies(
    {
      header: (name) => (name === 'x-gateway-debug' ? header : undefined),
      principal: callerWith(key === undefined ? {} : { defaults: { debug_log: key } }),
      snapshot: workspaceWith({ bodies: { debugLog: place, sample, days: null } }),
      traceId: trace,
    },
    rule,
  );

describe('whose word decides whether bodies are kept', () => {
  it.each<[string, Case, ReturnType<typeof decided>]>([
    ['nobody says anything', {}, 'failed answer'],
    ['the workspace says 1', { place: 1 }, 'all'],
    ['the key says 0 in a workspace that says 1', { place: 1, key: 0 }, 'failed answer'],
    ['the key says 1 in a workspace that says 0', { key: 1 }, 'all'],
    ['the installation says never, all others 1', { rule: 'never', key: 1, place: 1 }, 'none'],
    ['the header says false', { place: 1, header: 'false' }, 'none'],
    ['the header says False, as Python writes it', { place: 1, header: 'False' }, 'none'],
    ['the header says false where nothing else is on', { header: 'false' }, 'none'],
    ['the header says true where nothing else is on', { header: 'true' }, 'failed answer'],
    ['the sample is 0', { place: 1, sample: 0 }, 'failed answer'],
  ])('%s', (_, given, expected) => {
    expect(decided(given)).toBe(expected);
  });

  it('nothing is kept of a request whose caller is not known', () => {
    const request = { header: () => undefined, principal: null, snapshot: null, traceId: 't' };
    expect(keptBodies(request, 'allowed')).toBe('none');
  });
});

describe('a sample', () => {
  const traces = Array.from({ length: 2_000 }, (_, i) => `trace-${i}`);

  it('takes its share of the traces', () => {
    const kept = traces.filter((trace) => decided({ place: 1, sample: 0.25, trace }) === 'all');
    expect(kept.length).toBeGreaterThan(400);
    expect(kept.length).toBeLessThan(600);
  });

  it('keeps all requests of a trace or none', () => {
    for (const trace of traces.slice(0, 50)) {
      const answers = new Set([1, 2, 3].map(() => decided({ place: 1, sample: 0.5, trace })));
      expect(answers.size).toBe(1);
    }
  });
});

it('only the word false switches off', () => {
  for (const [value, off] of [
    ['false', true],
    ['FALSE', true],
    ['0', false],
    ['no', false],
    [undefined, false],
  ] as const) {
    expect(isDebugOff({ header: () => value })).toBe(off);
  }
});
