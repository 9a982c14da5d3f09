import { describe, expect, it } from 'vitest';
import { booksStore, limitSpecWith, ORGANISATION, WORKSPACE } from '../../../test/support/ledger-node.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { systemClock } from '../../kernel/clock.ts';
import { silentLog } from '../../kernel/log.ts';
import { compilePolicies, requestFacts } from '../policies/conditions.ts';
import { addUsageLimits, type UsagePolicy } from '../policies/usage.ts';
import type { UsageReservation } from './held-reservation.ts';
import { createLedger } from './ledger.ts';
import type { LimitSpec } from './limit-spec.ts';

const ROUNDS = 20_000;
/** Microseconds of CPU. Measured: see docs/decisions/2026-11-22-budgets.md; machines of CI are slower and busier. */
const MOST = 100;

describe('the price of a usage limit far from its end', () => {
  it.each([10, 10_000])('among %i policies: match, reservation and settlement without the store', async (count) => {
    const tables = await booksStore('sqlite');
    const lines: string[] = [];
    const journal = {
      failing: false,
      append(line: string, done: () => void) {
        lines[0] = line;
        done();
      },
      ship: async () => undefined,
    };
    const ledger = createLedger({
      tables,
      journal: async () => journal,
      clock: systemClock,
      log: silentLog,
      node: 'n',
      leaseMs: 600_000,
    });
    const policies = compilePolicies<UsagePolicy>(
      Array.from({ length: count }, (_, i) => ({
        conditions: [{ key: 'api_key', value: `key-${i}` }],
        group_by: [{ key: 'metadata._user' }],
        spec: limitSpecWith({ ownerId: `policy-${i}`, type: 'tokens', limit: 2 ** 40 }),
      })),
      { workspaceId: WORKSPACE, workspaceSlug: WORKSPACE, organisationId: ORGANISATION },
    );
    if (policies === null) throw new Error('no policies');
    const tenant = systemTenant(ORGANISATION, WORKSPACE);
    const facts = requestFacts({
      workspaceId: WORKSPACE,
      organisationId: ORGANISATION,
      keyId: 'key-7',
      provider: 'sandbox',
      slug: null,
      config: null,
      model: 'echo',
      requestType: 'chatComplete',
      metadata: { _user: 'alice' },
    });
    let ended = 0;
    const request = () => {
      const specs: LimitSpec[] = [];
      addUsageLimits(policies, facts, specs);
      return ledger.reserve(
        tenant,
        WORKSPACE,
        specs.map((one) => ({ spec: one, amount: 100, bounded: true })),
      );
    };
    const end = (hold: UsageReservation) =>
      hold.settle({ cost: 0, carry: 0, tokens: 80, requests: 1, unpriced: 0 }, () => {
        ended += 1;
      });
    end(await request());
    const run = () => {
      const began = process.cpuUsage();
      for (let i = 0; i < ROUNDS; i++) end(request() as UsageReservation);
      const { user, system } = process.cpuUsage(began);
      return (user + system) / ROUNDS;
    };
    run();
    const micros = run();
    expect(ended).toBe(1 + 2 * ROUNDS);
    expect(lines[0]).toContain(',100,80,');
    process.stdout.write(`a limit among ${count} policies: ${micros.toFixed(2)} µs of CPU\n`);
    expect(micros).toBeLessThan(MOST);
    await ledger.close();
    await tables.close();
  });
});
