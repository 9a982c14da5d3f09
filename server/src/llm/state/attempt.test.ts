import { expect, it } from 'vitest';
import { accountWith, callerWith, targetWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import { scanJson } from '../../kernel/json-scan.ts';
import { silentLog } from '../../kernel/log.ts';
import { NO_TOKENS } from '../../operations/usage.ts';
import type { Made } from '../../runtime/owners.ts';
import { passAnswerOver } from '../attempt.ts';
import { CacheEntryWriter } from '../cache/cache-entry-writer.ts';
import { Creation } from '../ownership/creation.ts';
import { noteOwner } from '../steps/note-owner.ts';
import { Attempt } from './attempt.ts';
import { RequestBody } from './body.ts';

const BODY = Buffer.from('{"model":"m","stream":true}');
const SENT = { body: new RequestBody(BODY, scanJson(BODY, ['stream'])), stream: true };

/** An attempt that has gone as far as attempts go. */
function tried(bodies = new BodyBudget(1e6)): Attempt {
  const attempt = new Attempt();
  attempt.target = targetWith('config.targets[0]');
  attempt.body = new RequestBody(Buffer.from('{"model":"changed"}'), null);
  attempt.shaped = true;
  attempt.creation = new Creation('response', false);
  attempt.creation.take({ id: 'resp_1' });
  attempt.caching = new CacheEntryWriter({ place: 'p', secret: Buffer.alloc(32) }, 1000, 'MISS', bodies, 'o');
  attempt.retriesLeft = { attempts: 1, statusCodes: new Set(), useRetryAfter: false };
  attempt.wouldFallBack = () => true;
  attempt.control = { pause() {}, resume() {}, abort() {} };
  return attempt;
}

it('an attempt on the next target begins with nothing of the last one', () => {
  const next = Attempt.after(tried(), SENT);
  const fresh = new Attempt();
  expect(next).toEqual({ ...fresh, ...SENT, wouldFallBack: next.wouldFallBack });
  expect(next.wouldFallBack).not.toBeNull();
});

it('what was kept of an answer for the cache is let go with the target that gave it', () => {
  const bodies = new BodyBudget(1e6);
  const failed = tried(bodies);
  failed.caching?.begin(1, 200, ['content-type', 'application/json']);
  failed.caching?.take(Buffer.alloc(200_000));
  expect(bodies.held).toBe(200_000);
  Attempt.after(failed, SENT);
  expect(bodies.held).toBe(0);
});

it('an object that a failed target made is not booked to the next one', async () => {
  const noted: Made[] = [];
  const owners = { note: async (made: Made) => void noted.push(made) };
  const x = testExchange({}, { owners, log: silentLog });
  x.request.principal = callerWith();
  x.attempt = Attempt.after(tried(), SENT);
  x.attempt.target = targetWith('config.targets[1]', accountWith({ accountId: 'other', shared: true }));
  await noteOwner(x);
  expect(noted).toEqual([]);
});

it('the answer of a failed target leaves no model, no status and no time of a first token, but its use', () => {
  const x = testExchange();
  x.attempt = tried();
  x.request.model = 'm';
  x.outcome.status = 500;
  x.outcome.result = 'failed';
  x.outcome.errorCode = 'server_error';
  x.outcome.errorMessage = 'broken';
  x.outcome.modelAnswered = 'm-2026';
  x.outcome.firstTokenMs = 12;
  x.outcome.ending = { kind: 'destroy' };
  x.outcome.answer.usage = { ...NO_TOKENS, input: 3, output: 4 };
  passAnswerOver(x);
  expect(x.outcome).toMatchObject({
    status: 0,
    result: 'ok',
    errorCode: null,
    errorMessage: null,
    modelAnswered: null,
    firstTokenMs: null,
    ending: null,
    answer: { usage: null },
    passedOver: [{ status: 500, errorCode: 'server_error', modelAnswered: 'm-2026' }],
    spent: [{ model: 'm', answered: 'm-2026', usage: { input: 3, output: 4 } }],
  });
});

it('what the client has seen of an answer stays in the record when the next target goes on from it', () => {
  const { outcome } = testExchange();
  outcome.headSent = true;
  outcome.status = 200;
  outcome.firstTokenMs = 12;
  outcome.passOver(null, '');
  expect([outcome.status, outcome.firstTokenMs]).toEqual([200, 12]);
});
