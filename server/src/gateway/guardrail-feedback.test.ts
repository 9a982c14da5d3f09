import { afterEach, describe, expect, it } from 'vitest';
import { temporaryTables } from '../../test/support/tables.ts';
import type { GivenFeedback } from '../guardrails/guardrail.ts';
import { TestClock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { silentLog } from '../kernel/log.ts';
import { seedTenants } from '../store/conformance/tenants.ts';
import type { Tables } from '../store/ports.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import { type GuardrailFeedback, openGuardrailFeedback } from './guardrail-feedback.ts';

const request = (more: Partial<RecordDraft> = {}): RecordDraft =>
  ({
    id: 'r',
    organisation_id: 'org-a',
    workspace_id: 'ws-a1',
    api_key_id: 'key',
    user_id: null,
    trace_id: 'trace',
    provider: 'openai',
    config_slug: null,
    model_requested: 'gpt-4o',
    ...more,
  }) as RecordDraft;
const FAILED: GivenFeedback = { value: -2.5, weight: 0.5, metadata: { failedChecks: 'a' } };

let feedback: GuardrailFeedback;
let tables: Tables;
afterEach(async () => {
  await feedback.close();
  await tables.close();
});

/** A real store, of which the next writes fail as told. */
async function open() {
  const clock = new TestClock();
  const warnings: string[] = [];
  const failures: Error[] = [];
  tables = await temporaryTables();
  await seedTenants(tables);
  const systemWrite: Tables['systemWrite'] = (run) => {
    const failure = failures.shift();
    return failure === undefined ? tables.systemWrite(run) : Promise.reject(failure);
  };
  const log = {
    ...silentLog,
    warn: (_message: string, fields?: Record<string, unknown>) => warnings.push(`${fields?.why}`),
  };
  feedback = openGuardrailFeedback({ tables: { systemWrite }, clock, log });
  const stored = () => tables.systemRead((tx) => tx.list('feedback'));
  return { clock, warnings, failures, stored };
}

const away = () => new SluiceError('unavailable', 'The store is away.');

describe('feedback of guardrails', () => {
  it('is stored beside requests, with what the request was', async () => {
    const { clock, stored } = await open();
    feedback.note(request(), 'pg-words', FAILED);
    expect(await stored()).toEqual([]);
    await clock.advance(500);
    await feedback.flush();
    expect(await stored()).toMatchObject([
      {
        organisation_id: 'org-a',
        workspace_id: 'ws-a1',
        trace_id: 'trace',
        source: 'guardrail',
        value: -2,
        weight_micros: 500_000,
        weighted_micros: -1_250_000,
        metadata: { failedChecks: 'a', guardrail: 'pg-words' },
        api_key_id: 'key',
        ai_model: 'gpt-4o',
        matched: true,
      },
    ]);
  });

  it('without weight, or of a request of nobody, is not kept', async () => {
    const { stored } = await open();
    feedback.note(request(), 'g', { ...FAILED, weight: 0 });
    feedback.note(request({ workspace_id: null }), 'g', FAILED);
    await feedback.flush();
    expect([await stored(), feedback.dropped]).toEqual([[], 0]);
  });

  it('waits while the store is away', async () => {
    const { clock, failures, stored } = await open();
    failures.push(away());
    feedback.note(request(), 'g', FAILED);
    await feedback.flush();
    expect(await stored()).toEqual([]);
    await clock.advance(500);
    await feedback.flush();
    expect([(await stored()).length, feedback.dropped]).toEqual([1, 0]);
  });

  it('that the store refuses takes no other with it', async () => {
    const { warnings, stored } = await open();
    feedback.note(request(), 'g', FAILED);
    feedback.note(request({ workspace_id: 'ws-none' }), 'g', FAILED);
    feedback.note(request(), 'g', FAILED);
    await feedback.flush();
    expect([(await stored()).length, feedback.dropped, warnings]).toEqual([2, 1, ['the store refused it']]);
  });

  it('above 10,000 that wait is dropped, counted and logged', async () => {
    const { warnings } = await open();
    for (let n = 0; n < 10_003; n++) feedback.note(request(), 'g', FAILED);
    expect([feedback.dropped, warnings]).toEqual([3, Array(3).fill('too many wait for the store')]);
  });

  it('is written before a stop, and one that cannot be is counted', async () => {
    const { failures, stored } = await open();
    feedback.note(request(), 'g', FAILED);
    await feedback.close();
    expect((await stored()).length).toBe(1);
    feedback.note(request(), 'g', FAILED);
    failures.push(away());
    await feedback.close();
    expect([(await stored()).length, feedback.dropped]).toEqual([1, 1]);
  });
});
