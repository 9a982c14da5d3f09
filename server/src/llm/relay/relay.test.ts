import { expect, it } from 'vitest';
import { testExchange } from '../../../test/support/exchange.ts';
import { GuardrailState } from '../../gateway/guardrail-state.ts';
import { compileInline } from '../../guardrails/compile.ts';
import { BodyBudget } from '../../http/body-budget.ts';
import type { AttemptResult } from '../state/attempt-result.ts';
import { chooseAnswerGuarding } from '../steps/choose-answer-guarding.ts';
import { Relay } from './relay.ts';

const KB = 1024;
const JSON_HEADERS = ['content-type', 'application/json'];
const strict = (more: object = {}) => [compileInline({ deny: true, 'default.wordCount': {}, ...more }, 'strict')];

/** The relay of one answer that counts what it keeps in `bodies`. */
function answering(bodies: BodyBudget, { output = strict(), converts = false } = {}) {
  const x = testExchange({}, { bodies, pricer: { estimateTokens: () => 0 } });
  x.guard = new GuardrailState(x.services, x.request, { input: [], output });
  x.answerSteps = [chooseAnswerGuarding];
  let result: AttemptResult | null = null;
  const relay = new Relay({
    x,
    target: { sent: [], credentials: { settings: {} } } as never,
    bound: {
      binding: { shape: 'chat' },
      convert: null,
      ...(converts ? { response: (body: unknown) => body } : {}),
    } as never,
    context: { strict: true } as never,
    stripUsage: false,
    started: 0,
    firstData: () => undefined,
    settle: (settled) => {
      result = settled;
    },
  });
  relay.onHead(200, JSON_HEADERS, { pause: () => undefined, resume: () => undefined, abort: () => undefined } as never);
  return { relay, x, said: () => result as AttemptResult | null };
}

it('answers that are kept to be judged are counted with all bodies, and one too many is refused', () => {
  const bodies = new BodyBudget(2048 * KB);
  const [one, two] = [answering(bodies), answering(bodies)];
  one.relay.onData(Buffer.alloc(600 * KB, 32));
  expect(bodies.held).toBe(600 * KB);
  two.relay.onData(Buffer.alloc(600 * KB, 32));
  expect(two.said()).toMatchObject({ kind: 'failed', error: { kind: 'guardrail_denied' } });
  expect(two.x.guard?.after).toMatchObject([{ verdict: false, checks: [{ error: { name: 'NotJudged' } }] }]);
  one.relay.onError({ kind: 'upstream_cut' } as never);
  expect(bodies.held).toBe(0);
});

it('answers that are kept to be converted are counted, and one too many is told to come again', () => {
  const bodies = new BodyBudget(2048 * KB);
  const [one, two] = [answering(bodies, { converts: true }), answering(bodies, { converts: true })];
  one.relay.onData(Buffer.alloc(600 * KB, 32));
  two.relay.onData(Buffer.alloc(600 * KB, 32));
  expect(two.said()).toMatchObject({ kind: 'failed', error: { kind: 'out_of_service', retryAfter: 1 } });
  expect([one.said(), bodies.held]).toEqual([null, 600 * KB]);
});

it('small answers are not counted', () => {
  const bodies = new BodyBudget(1);
  const { relay, said } = answering(bodies);
  relay.onData(Buffer.alloc(60 * KB, 32));
  expect([said(), bodies.held]).toEqual([null, 0]);
});
