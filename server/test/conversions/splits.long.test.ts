/** However the network cuts a stream into pieces, and however its lines end, its caller is sent the same bytes. */
import { describe, expect, it } from 'vitest';
import { CASES, type Case } from './cases.ts';
import { type Caller, Relayed, SSE } from './relayed.ts';

/** The same stream as other servers would write it. Comments, ids and retry times say nothing. */
const SPELLINGS: readonly (readonly [string, (text: string) => string])[] = [
  ['with CRLF', (text) => text.replaceAll('\n', '\r\n')],
  ['with CR', (text) => text.replaceAll('\n', '\r')],
  [
    'with comments, ids and retry times',
    (text) => `: hi\n\nretry: 3000\n\n${text.replaceAll('data:', ': c\nid: 7\ndata:')}`,
  ],
  ['without spaces', (text) => text.replaceAll('data: ', 'data:').replaceAll('event: ', 'event:')],
  ['with a byte order mark', (text) => `\ufeff${text}`],
  ['with data in several lines', (text) => text.replaceAll('data: {', 'data: {\ndata: ')],
];

function everySplit({ stream, type, way }: Case, caller: Caller, bytes = stream ?? Buffer.alloc(0)): void {
  const relayed = new Relayed(way(caller, true));
  const whole = relayed.answer([bytes], type);
  for (let at = 1; at < bytes.length; at++) {
    const told = relayed.answer([bytes.subarray(0, at), bytes.subarray(at)], type);
    if (told.text !== whole.text) expect({ at, text: told.text }).toEqual({ at, text: whole.text });
    if (told.outcome !== whole.outcome) expect({ at, outcome: told.outcome }).toEqual({ at, outcome: whole.outcome });
  }
  const told = relayed.answer(
    Array.from(bytes, (_, at) => bytes.subarray(at, at + 1)),
    type,
  );
  expect(told).toEqual(whole);
}

const STREAMS = CASES.filter(({ stream }) => stream !== null);

describe.each(STREAMS.map((one) => [one.name, one] as const))('%s', (name, one) => {
  for (const caller of one.callers)
    it(`is the same for ${caller} at every split`, () => {
      everySplit(one, caller);
    });
  if (one.type !== SSE || one.stream === null) return;
  const text = one.stream.toString('utf8');
  for (const caller of one.callers.filter((served) => !one.native.includes(served)))
    for (const [title, spell] of SPELLINGS)
      it(`is the same for ${caller} ${title}`, () => {
        const relayed = new Relayed(one.way(caller, true));
        const spelled = Buffer.from(spell(text));
        expect(relayed.answer([spelled], one.type).text).toBe(relayed.answer([Buffer.from(text)], one.type).text);
        // One case of each shape is enough to cut between any two bytes of a line end.
        if (name.endsWith('-text') && title.includes('CR')) everySplit(one, caller, spelled);
      });
});
