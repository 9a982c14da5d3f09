import { Readable } from 'node:stream';
import { expect, it } from 'vitest';
import { callerWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import { answerObject } from './training-objects.ts';

/** A request about a file, which `training/` answers so. */
function asked(answer: (call: ObjectCall) => Promise<ObjectAnswer>, id = 'file-1') {
  const calls: ObjectCall[] = [];
  const objects = {
    handle(call: ObjectCall) {
      calls.push(call);
      return answer(call);
    },
  };
  const given = {
    operation: 'file_content',
    method: 'GET',
    url: `/v1/files/${id}/content?limit=2`,
    headers: { 'x-gateway-provider': 'gateway' },
    params: { id },
  } as const;
  const x = testExchange(given, { objects });
  x.request.principal = callerWith();
  x.request.snapshot = workspaceWith();
  return { x, calls };
}

const whole = async (): Promise<ObjectAnswer> => ({
  status: 200,
  headers: ['x-mine', 'a'],
  body: Buffer.from('lines'),
});

it('a request about an object is handed on as it came, and what comes back is the answer', async () => {
  const { x, calls } = asked(whole);
  await answerObject(x);
  const [call] = calls;
  expect([call?.operation, call?.params, call?.query.get('limit'), call?.managed]).toEqual([
    'file_content',
    { id: 'file-1' },
    '2',
    true,
  ]);
  expect(x.outcome).toMatchObject({ status: 200, ending: { kind: 'whole', status: 200 } });
  expect(String(x.outcome.ending?.kind === 'whole' ? x.outcome.ending.body[0] : '')).toBe('lines');
});

it.each(['..', 'a/../b', '%2e%2e', 'a\\b', 'a%0ab'])('an id that would lead elsewhere is refused: %s', async (id) => {
  const { x, calls } = asked(whole, id);
  await expect(answerObject(x)).rejects.toMatchObject({ kind: 'malformed_call' });
  expect(calls).toEqual([]);
});

it('a caller who leaves ends the work, whatever it fails with', async () => {
  const { x } = asked(
    (call) => new Promise((_, reject) => call.signal.addEventListener('abort', () => reject(new Error('stopped')))),
  );
  const ended = answerObject(x);
  x.cancel?.(new SluiceError('client_closed', 'The client closed the connection.'));
  await expect(ended).rejects.toMatchObject({ kind: 'client_closed' });
  expect(x.cancel).toBeNull();
});

it('the last piece of a streamed answer is kept back until the record is written', async () => {
  const { x } = asked(async () => ({
    status: 200,
    headers: [],
    body: Readable.from(['one ', 'two ', 'three']),
    length: 13,
  }));
  await answerObject(x);
  expect([x.outcome.headSent, x.outcome.bytesOut]).toEqual([true, 8]);
  expect(x.outcome.ending).toEqual({ kind: 'tail', body: [Buffer.from('three')] });
});

it.each([
  ['shorter', 14],
  ['longer', 12],
])('a stream that is %s than it was said to be is cut off', async (_title, length) => {
  const { x } = asked(async () => ({
    status: 200,
    headers: [],
    body: Readable.from(['one ', 'two ', 'three']),
    length,
  }));
  await expect(answerObject(x)).rejects.toMatchObject({ kind: 'upstream_cut' });
  expect(x.outcome.ending).toBeNull();
});
