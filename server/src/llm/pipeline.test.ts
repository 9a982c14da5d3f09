import { expect, it } from 'vitest';
import { callerWith, ownRecorder, workspaceWith } from '../../test/support/caller.ts';
import { testExchange } from '../../test/support/exchange.ts';
import { BodyBudget } from '../http/body-budget.ts';
import { KnownPaths } from '../http/known-paths.ts';
import { FairShares } from '../kernel/fair-shares.ts';
import { silentLog } from '../kernel/log.ts';
import { silentNotes } from '../kernel/notes.ts';
import { run } from './pipeline.ts';

/** A request of a known caller whose body is still to come. */
function request() {
  const { recorder, lines } = ownRecorder();
  const services = {
    authenticator: { authenticate: () => callerWith() },
    runtime: { workspace: () => workspaceWith() },
    concurrency: new FairShares('requests', 8),
    bodies: new BodyBudget(1e6),
    paths: new KnownPaths(() => 'http://localhost'),
    log: silentLog,
    notes: silentNotes,
    accessLog: null,
    maxBodyBytes: 1e6,
    recorder,
  };
  const headers = {
    'x-gateway-api-key': 'slc_wks_mine',
    'content-type': 'application/json',
    'content-length': '400000',
  };
  const x = testExchange({ headers }, services);
  x.request.incoming.complete = false;
  return { x, services, records: () => lines.map((line) => JSON.parse(line) as object) };
}

it('a caller who leaves while the body is read leaves one record, and nothing that is counted', async () => {
  const { x, services, records } = request();
  const ended = run(x);
  x.request.incoming.push(Buffer.alloc(200_000));
  await new Promise((resolve) => setImmediate(resolve));
  expect([services.concurrency.held, services.bodies.held > 0]).toEqual([1, true]);
  x.response.destroy();
  x.request.incoming.emit('close');
  await ended;
  expect(records()).toMatchObject([{ outcome: 'aborted', status: 499, api_key_id: 'key-1', cost_micros: null }]);
  expect([services.concurrency.held, services.bodies.held]).toEqual([0, 0]);
});
