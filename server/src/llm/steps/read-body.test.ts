import { expect, it } from 'vitest';
import { callerWith, ORGANISATION } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import type { TestClock } from '../../kernel/clock.ts';
import type { OperationId } from '../../operations/operation.ts';
import { readRequestBody } from './read-body.ts';

const JSON_TYPE = { 'content-type': 'application/json' };

/** A request whose body is still to come. */
function coming(text: string, headers: Record<string, string> = {}, operation: OperationId = 'chat') {
  const bodies = new BodyBudget(1e7);
  const all = { ...JSON_TYPE, 'content-length': String(Buffer.byteLength(text)), ...headers };
  const x = testExchange({ operation, headers: all }, { bodies, maxBodyBytes: 1e6 });
  x.request.principal = callerWith();
  x.request.incoming.complete = false;
  const send = () => {
    const { incoming } = x.request;
    incoming.push(Buffer.from(text));
    incoming.complete = true;
    incoming.push(null);
  };
  return { x, bodies, send };
}

/** A request whose body is read. */
function given(text: string, operation: OperationId = 'chat', headers: Record<string, string> = JSON_TYPE) {
  const x = testExchange({ operation, headers, body: Buffer.from(text) });
  return { x, read: () => readRequestBody(x) };
}

it('a body is read whole, and its bytes are counted for the record and for its organisation', async () => {
  const text = JSON.stringify({ model: '@sb/m', stream: true, messages: 'a'.repeat(200_000) });
  const { x, bodies, send } = coming(text);
  const pending = readRequestBody(x);
  send();
  await pending;
  expect([x.request.model, x.attempt.stream]).toEqual(['@sb/m', true]);
  expect([x.outcome.bytesIn, x.bodyHeld, bodies.shares.heldBy(ORGANISATION)]).toEqual(Array(3).fill(text.length));
});

it('the time that reading and parsing took is known, from the first wait for the body on', async () => {
  const { x, send } = coming('{"model":"m"}');
  const clock = x.services.clock as TestClock;
  clock.jump(1_000);
  const pending = readRequestBody(x);
  clock.jump(25);
  send();
  await pending;
  expect(x.outcome.times.parse).toBe(25);
});

it('a body that is too large is refused by its declared length, before a byte of it is read', async () => {
  const { x, bodies } = coming('', { 'content-length': '2000000' });
  await expect(readRequestBody(x)).rejects.toMatchObject({ kind: 'too_large' });
  expect([bodies.held, x.bodyHeld, x.outcome.bytesIn]).toEqual([0, 0, 0]);
});

it('a caller who leaves while the body is read ends it, and nothing stays counted', async () => {
  const { x, bodies } = coming('', { 'content-length': '400000' });
  const pending = Promise.resolve(readRequestBody(x));
  x.request.incoming.push(Buffer.alloc(200_000));
  await new Promise((resolve) => setImmediate(resolve));
  x.request.incoming.emit('close');
  await expect(pending).rejects.toMatchObject({ kind: 'client_closed' });
  expect([bodies.held, x.bodyHeld]).toEqual([0, 0]);
});

it.each([
  ['a model that is a number', '{"model":7}', 'model must be a text'],
  ['a stream that is a text', '{"stream":"yes"}', 'stream must be true or false'],
  ['a list', '[]', 'Send one JSON object'],
  ['half an object', '{"model":', 'Send one JSON object'],
  ['a very long model', JSON.stringify({ model: 'm'.repeat(2049) }), 'model must have at most 2048 characters'],
])('a body of %s is refused, and the error says why', (_title, text, message) => {
  const { x, read } = given(text);
  expect(read).toThrow(message);
  // What is refused is not recorded either: names have a bound.
  expect(x.request.model).toBe('');
});

it('members that are null are as if they were left out', () => {
  const { x, read } = given('{"model":null,"stream":null}');
  expect(read).not.toThrow();
  expect([x.request.model, x.attempt.stream]).toEqual(['', false]);
});

it('a model is read as JSON has it, escapes and all', () => {
  const { x, read } = given('{"model":"@sb\\/gpt\\u002d4o"}');
  void read();
  expect(x.request.model).toBe('@sb/gpt-4o');
});

it('a body of another type is refused by the type that was sent', () => {
  expect(given('{}', 'chat', { 'content-type': 'text/plain' }).read).toThrow('got "text/plain"');
});

it('what is passed through need be no object', () => {
  expect(given('[1,2]', 'proxy').read).not.toThrow();
});

it('the model of a form is found among its fields', async () => {
  const form = '--b\r\ncontent-disposition: form-data; name="model"\r\n\r\n@sb/whisper\r\n--b--\r\n';
  const { x, send } = coming(form, { 'content-type': 'multipart/form-data; boundary=b' }, 'transcribe');
  const pending = readRequestBody(x);
  send();
  await pending;
  expect(x.request.model).toBe('@sb/whisper');
});

it.each(['1', 'yes', 'dry'])('x-gateway-dry-run: %s is refused: it must not run and cost', (value) => {
  const { x, read } = given('{}', 'chat', { ...JSON_TYPE, 'x-gateway-dry-run': value });
  expect(read).toThrow('x-gateway-dry-run must be true or false');
  expect(x.request.dryRun).toBe(false);
});

it.each([
  ['TRUE', true],
  ['false', false],
])('x-gateway-dry-run: %s is understood', (value, dryRun) => {
  const { x, read } = given('{}', 'chat', { ...JSON_TYPE, 'x-gateway-dry-run': value });
  void read();
  expect(x.request.dryRun).toBe(dryRun);
});
