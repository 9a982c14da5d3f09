import { expect, it } from 'vitest';
import { callerWith, ownRecorder, targetWith, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import type { InProcessResponse } from '../../http/in-process.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { silentNotes } from '../../kernel/notes.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import type { AccessEntry } from '../../telemetry/access-log.ts';
import { respondError } from '../respond-error.ts';
import { record } from './record.ts';

const ID = '019b76da-a800-7000-8000-000000000001';
const TRACE = { 'x-gateway-trace-id': 'trace-1', 'x-gateway-span-id': 'span-1' };

/** A request of the first moment of 2026 whose record goes into `lines`. */
function request(accessLog: 'none' | 'errors' = 'none') {
  const { recorder, lines } = ownRecorder();
  const entries: AccessEntry[] = [];
  const log = { all: false, write: (entry: AccessEntry) => void entries.push(entry) };
  const x = testExchange(
    { url: '/v1/chat/completions?key=hidden', headers: TRACE },
    { recorder, bodies: new BodyBudget(1e6), accessLog: accessLog === 'none' ? null : log, notes: silentNotes },
  );
  Object.assign(x.request, { id: ID });
  x.request.principal = callerWith();
  x.request.snapshot = workspaceWith();
  x.request.model = 'm';
  return { x, lines, entries };
}

/** The same after its answer. */
function answered() {
  const made = request();
  const { x } = made;
  x.attempt.target = targetWith();
  x.request.metadata = { _user: 'alice' };
  x.outcome.status = 200;
  x.outcome.bytesIn = 71;
  x.outcome.modelAnswered = 'm-2026';
  x.outcome.usage = { ...NO_TOKENS, input: 10, output: 5 };
  x.outcome.costMicros = 20;
  x.outcome.price = { source: 'sandbox', rates: { input: 1, output: 2 } };
  x.outcome.attempts.push({ target: 'config', provider: 'sandbox', status: 200, error: null, duration_ms: 3 });
  x.outcome.ending = { kind: 'whole', status: 200, headers: [], body: [Buffer.from('{"ok":'), Buffer.from('true}')] };
  return made;
}

const HEAD = `{"id":"${ID}","time":1767225600000,"organisation_id":"org-1","workspace_id":"ws-1","api_key_id":"key-1","user_id":null,"trace_id":"trace-1","span_id":"span-1","parent_span_id":null,"source":"llm","operation":"chat","method":"POST","path":"/v1/chat/completions",`;

it('the stored record of an answered request is this line, byte for byte', async () => {
  const { x, lines } = answered();
  await record(x);
  expect(lines).toEqual([
    `${HEAD}"provider":"sandbox","provider_slug":"sb","config_slug":null,"option":"config","retries":0,"fallback":false,"model_requested":"m","model_answered":"m-2026","stream":false,"status":200,"outcome":"ok","error_code":null,"error_message":null,"usage":{"input":10,"output":5,"cache_read":0,"cache_write":0,"reasoning":0,"audio_input":0,"audio_output":0},"usage_estimated":false,"cost_micros":20,"price":{"source":"sandbox","rates":{"input":1,"output":2}},"latency_ms":0,"ttft_ms":null,"upstream_us":0,"gateway_us":0,"pre_us":0,"attempts":[{"target":"config","provider":"sandbox","status":200,"error":null,"duration_ms":3}],"bytes_in":71,"bytes_out":11,"upstream_bytes_out":0,"upstream_bytes_in":0,"metadata":{"_user":"alice"},"cache_status":"DISABLED","dry_run":false,"node":"node-1","seq":1}`,
  ]);
});

it('the stored record of a refused request is this line, byte for byte', async () => {
  const { x, lines } = request();
  respondError(x, new SluiceError('forbidden', 'This key lacks the scope completions.write.'));
  await record(x);
  expect(lines).toEqual([
    `${HEAD}"provider":null,"provider_slug":null,"config_slug":null,"retries":0,"fallback":false,"model_requested":"m","model_answered":null,"stream":false,"status":403,"outcome":"refused","error_code":"AB03","error_message":"This key lacks the scope completions.write.","usage":null,"usage_estimated":false,"cost_micros":null,"price":null,"latency_ms":0,"ttft_ms":null,"upstream_us":0,"gateway_us":0,"pre_us":0,"attempts":[],"bytes_in":0,"bytes_out":116,"upstream_bytes_out":0,"upstream_bytes_in":0,"metadata":null,"cache_status":"DISABLED","dry_run":false,"node":"node-1","seq":1}`,
  ]);
});

it('an answer is whole only when its record is in the journal, and tells then what it cost', async () => {
  const { x } = answered();
  const journal = { written: () => {} };
  const recorder = { record: (_draft: unknown, done: () => void) => void Object.assign(journal, { written: done }) };
  Object.assign(x, { services: { ...x.services, recorder } });
  const { collected } = x.response as InProcessResponse;
  const pending = record(x);
  await new Promise((resolve) => setImmediate(resolve));
  expect(x.outcome.headSent).toBe(false);
  journal.written();
  await pending;
  const answer = await collected;
  expect([answer.complete, String(answer.body)]).toEqual([true, '{"ok":true}']);
  expect(answer.headers).toMatchObject({ 'x-gateway-cost': '0.00002' });
});

it('a caller who left is sent nothing, and leaves one record of what was used', async () => {
  const { x, lines } = answered();
  x.clientGone = true;
  await record(x);
  expect(lines.map((line) => JSON.parse(line))).toMatchObject([{ bytes_out: 0, cost_micros: 20, seq: 1 }]);
  expect(x.outcome.headSent).toBe(false);
});

it('a refused request leaves a line for operators, whose log is of errors only', async () => {
  const { x, entries } = request('errors');
  respondError(x, new SluiceError('forbidden', 'No.'));
  await record(x);
  expect(entries).toMatchObject([{ request_id: ID, status: 403, path: '/v1/chat/completions', api_key_id: 'key-1' }]);
});

it('a path is recorded without its query, where callers put keys', async () => {
  const { x, lines } = answered();
  await record(x);
  expect(lines.join()).not.toContain('hidden');
});
