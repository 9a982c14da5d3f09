/** A caller that is known, its workspace and an account of it, for tests of what one request goes through. */
import type { Principal } from '../../src/auth/principal.ts';
import { TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { createAdmission } from '../../src/limits/rate-limits.ts';
import { compileLimits } from '../../src/llm/relay/retry-rules.ts';
import { Target } from '../../src/llm/target.ts';
import { setPrice } from '../../src/pricing/set-price.ts';
import { sandbox } from '../../src/providers/sandbox/sandbox.ts';
import type { StoredProvider, WorkspaceSnapshot } from '../../src/runtime/snapshot.ts';
import { memoryCounters } from '../../src/store/memory/counters.ts';
import { createRecorder } from '../../src/telemetry/recorder.ts';
import { booksStore, ledgerNode, ORGANISATION, WORKSPACE } from './ledger-node.ts';
import { alreadyOpen } from './runtime.ts';

export { ORGANISATION, WORKSPACE } from './ledger-node.ts';

/** The key of a service that may call models. */
export function callerWith(more: Partial<Principal> = {}): Principal {
  return {
    kind: 'workspace-service',
    keyId: 'key-1',
    keyName: 'nightly',
    organisationId: ORGANISATION,
    workspaceId: WORKSPACE,
    userId: null,
    role: null,
    scopes: new Set(['completions.write']),
    defaults: {},
    rateLimits: [],
    usageLimits: null,
    changedAt: 1,
    expiresAt: null,
    ...more,
  };
}

/** A workspace without limits, guardrails and configs; its one account is `@sb`. */
export function workspaceWith(more: Partial<WorkspaceSnapshot> = {}): WorkspaceSnapshot {
  return {
    organisationId: ORGANISATION,
    workspaceId: WORKSPACE,
    workspaceSlug: 'w',
    generation: 1,
    blockInlineConfig: false,
    metadata: null,
    rateLimits: null,
    ratePolicies: { llm: null, mcpTools: null },
    usageLimits: [],
    usagePolicies: null,
    providers: new Map([['sb', accountWith()]]),
    configs: new Map(),
    guardrails: { byName: new Map(), input: [], output: [] },
    cacheMaxAge: null,
    bodies: { debugLog: 0, sample: 1, days: null },
    plans: new Map(),
    ...more,
  };
}

export function accountWith(more: Partial<StoredProvider> = {}): StoredProvider {
  return {
    slug: 'sb',
    entityId: 'sb-1',
    accountId: 'sb-1',
    kind: 'provider',
    shared: false,
    passthrough: false,
    provider: sandbox,
    account: alreadyOpen({ key: null, settings: {}, customHost: null, customHeaders: {} }),
    models: new Map(),
    allowAllModels: true,
    pricingAdjustments: null,
    expiresAt: null,
    rateLimits: [],
    usageLimits: [],
    broken: null,
    ...more,
  };
}

/** How long attempts may take, milliseconds. */
export const TIMEOUTS = { headersMs: 1000, idleMs: 1000, firstTokenMs: 1000, quietMs: 1000 };

/** The sandbox as a request's target, through an account of the workspace. */
export function targetWith(path = 'config', stored: StoredProvider | null = accountWith()): Target {
  return new Target({
    path,
    provider: sandbox,
    stored,
    credentials: { key: null, settings: {} },
    url: null,
    customHeaders: [],
    shaping: null,
    forwardHeaders: [],
    timeoutMs: null,
    limits: compileLimits(undefined, null, TIMEOUTS),
    onBreak: null,
    hedge: null,
    retry: null,
    cache: null,
    strict: true,
  });
}

/** Each token of the input costs a micro-dollar, each of the output two. */
export const PRICER = { price: () => setPrice(RATES), estimateTokens: () => 1 };
const RATES = { input: 1, output: 2 };

export function ownAdmission(clock = new TestClock()) {
  return createAdmission({ counters: memoryCounters({ clock }), share: null, clock, log: silentLog });
}

/** Usage limits with books of their own; `drain` brings what was settled into them. */
export async function ownLedger(clock = new TestClock()) {
  const tables = await booksStore('sqlite');
  const node = await ledgerNode(tables, { clock });
  const close = async () => {
    await node.close();
    await tables.close();
  };
  return { ledger: node.ledger, drain: () => node.drain(), close };
}

/** A recorder whose journal is a list of lines. */
export function ownRecorder(failing = false) {
  const lines: string[] = [];
  const recorder = createRecorder('node-1', {
    failing,
    append(line, done, tail = '') {
      lines.push(line + tail);
      done();
    },
  });
  return { recorder, lines };
}
