/** The administration API on a real listener and a real store, with an operator key and an organisation or two. */
import { createHmac } from 'node:crypto';
import type { AddressInfo } from 'node:net';
import type { FastifyInstance } from 'fastify';
import { type AdminDeps, registerAdmin, registerRows } from '../../src/admin/handle.ts';
import { registerOperator } from '../../src/admin/operator.ts';
import { refuse } from '../../src/admin/respond.ts';
import type { AdminRow } from '../../src/admin/route.ts';
import { type Authenticator, createAuthenticator } from '../../src/auth/authenticator.ts';
import { createApp } from '../../src/http/app.ts';
import { KnownPaths } from '../../src/http/known-paths.ts';
import { type Clock, systemClock } from '../../src/kernel/clock.ts';
import { type Log, silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import { createSimulationRunner } from '../../src/limits/simulation/simulation-runner.ts';
import { createGuardrailInvoker } from '../../src/llm/guard/guardrail-invoker.ts';
import { AUDIT_CHECK } from '../../src/resources/audit-logs/index.ts';
import { auditCheck } from '../../src/resources/audit-logs/verify.ts';
import { GATEWAYS } from '../../src/resources/deployments/ping.ts';
import { GUARDRAIL_INVOKER } from '../../src/resources/guardrails/invoke.ts';
import { ACCOUNT_TRIALS } from '../../src/resources/integrations/trial.ts';
import { RATE_COUNTERS } from '../../src/resources/limits/index.ts';
import { DESTINATION_TRIALS } from '../../src/resources/log-destinations/index.ts';
import { type BodyReader, KEPT_BODIES } from '../../src/resources/logs/bodies.ts';
import { EXPORTS } from '../../src/resources/logs/exports/index.ts';
import { RECORDS } from '../../src/resources/logs/index.ts';
import { type CreatedOrganisation, createOperatorKey, createOrganisation } from '../../src/resources/organisations.ts';
import { SIMULATIONS } from '../../src/resources/policies/simulation.ts';
import { SECRET_MANAGERS } from '../../src/resources/secret-references/manager.ts';
import { Services } from '../../src/resources/services.ts';
import { memoryCounters } from '../../src/store/memory/counters.ts';
import type { Tables } from '../../src/store/ports.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import type { Vault } from '../../src/store/vault.ts';
import { outsideOf } from './guardrails.ts';
import { migratedDatabase } from './postgres.ts';
import { temporaryTables } from './tables.ts';

/** Migrated control tables of an engine, empty. */
export async function emptyTables(engine: 'sqlite' | 'postgres', clock?: Clock): Promise<Tables> {
  if (engine === 'sqlite') return temporaryTables(clock);
  const tables = await openPostgresTables({ url: await migratedDatabase(), log: silentLog });
  await tables.migrate();
  return tables;
}

/** Keeps secrets readable: only for tests of other things. */
export const plainVault: Vault = {
  seal: async (_tenant, _place, value) => `plain.${value.reveal()}`,
  open: async (_tenant, _place, sealed) => new Secret(sealed.slice('plain.'.length)),
  mac: (use: string, data: Buffer, keyId: string = 'test') => ({
    keyId,
    digest: createHmac('sha256', keyId).update(use).update(data).digest(),
  }),
};

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into answers of every shape
  readonly body: any;
  readonly text: string;
}

export interface Call {
  readonly key?: string | null;
  readonly body?: unknown;
  /** Sent as it is, instead of `body`. */
  readonly raw?: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export interface AdminHarness {
  readonly app: FastifyInstance;
  readonly url: string;
  readonly tables: Tables;
  readonly authenticator: Authenticator;
  readonly operatorKey: string;
  /** Two organisations that must never see each other. */
  readonly a: CreatedOrganisation;
  readonly b: CreatedOrganisation;
  /** Lines of the operational log, as JSON. */
  readonly logged: string[];
  /** `[method, path, operation]` of every registered route. */
  readonly routes: (readonly [string, string, string | null])[];
  call(method: string, path: string, call?: Call): Promise<Answer>;
  close(): Promise<void>;
}

/** A store of bodies that holds none. */
const emptyBodies: BodyReader = {
  find: async () => null,
  search: async () => ({ rows: [], next: null, searched: 0, unread: 0, complete: true }),
  days: 14,
};

/** What a gateway answers to a ping. */
const ALL_WELL = { version: '1', outboundError: null, inboundError: null };

/** The services that a test has not provided itself. */
function withDefaults(services: Services, clock: Clock, tables: Tables): Services {
  const simulations = createSimulationRunner({
    records: { walk: async () => [], isWhole: async () => true },
    countersFor: (time) => memoryCounters({ clock: time }),
  });
  if (SIMULATIONS.find(services) === null) services.provide(SIMULATIONS, simulations);
  if (DESTINATION_TRIALS.find(services) === null) {
    const run = async () => ({ delivered: true, status: 200, answer: '', message: null });
    services.provide(DESTINATION_TRIALS, { run });
  }
  if (KEPT_BODIES.find(services) === null) services.provide(KEPT_BODIES, emptyBodies);
  if (SECRET_MANAGERS.find(services) === null)
    services.provide(SECRET_MANAGERS, { read: async () => ({ object: {} }) });
  if (ACCOUNT_TRIALS.find(services) === null) {
    const run = async () => ({ status: 200, body: { object: 'list', data: [] } });
    services.provide(ACCOUNT_TRIALS, { run });
  }
  if (GATEWAYS.find(services) === null) services.provide(GATEWAYS, { ping: async () => ALL_WELL });
  if (EXPORTS.find(services) === null) services.provide(EXPORTS, { maxRows: 1_000, wake: () => undefined });
  if (RATE_COUNTERS.find(services) === null) services.provide(RATE_COUNTERS, memoryCounters({ clock }));
  if (AUDIT_CHECK.find(services) === null) services.provide(AUDIT_CHECK, auditCheck(tables, plainVault));
  if (RECORDS.find(services) === null) services.provide(RECORDS, { find: async () => null });
  const trials = createGuardrailInvoker({ clock, outside: () => () => outsideOf() });
  return GUARDRAIL_INVOKER.find(services) === null ? services.provide(GUARDRAIL_INVOKER, trials) : services;
}

export async function startAdmin(
  tables: Tables,
  options: {
    readonly clock?: Clock;
    readonly admin?: Partial<AdminDeps>;
    /** Other beginnings of `x-gateway-` headers. */
    readonly headerAliases?: readonly string[];
    /** Served beside the catalogue. */
    readonly rows?: readonly AdminRow[];
    /** Registers further routes. */
    readonly register?: (app: FastifyInstance, deps: AdminDeps) => void;
  } = {},
): Promise<AdminHarness> {
  const clock = options.clock ?? systemClock;
  const logged: string[] = [];
  const write = (level: string) => (message: string, fields?: Record<string, unknown>) => {
    const text = (value: unknown) => (value instanceof Error ? `${value.message} ${String(value.cause ?? '')}` : value);
    const shown = Object.fromEntries(Object.entries(fields ?? {}).map(([name, value]) => [name, text(value)]));
    logged.push(JSON.stringify({ level, message, ...shown }));
  };
  const log: Log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  const { a, b, operatorKey } = await tables.systemWrite(async (tx) => {
    const create = (name: string) =>
      createOrganisation(tx, {
        name,
        owner: { email: `owner@${name.toLowerCase()}.example`, first_name: 'Ada', last_name: name },
        blockInlineConfig: true,
        clock,
      });
    return { a: await create('Alpha'), b: await create('Beta'), operatorKey: await createOperatorKey(tx, clock) };
  });
  const authenticator = createAuthenticator({ tables, clock, log });
  const paths = new KnownPaths(() => 'https://sluice.example');
  const app = createApp({
    clock,
    express: new Map(),
    headerAliases: options.headerAliases ?? [],
    trustedProxies: [],
    paths,
    refuse: (request, response, error) => refuse(request, response, error, log),
    draining: () => false,
  });
  const routes: AdminHarness['routes'] = [];
  app.addHook('onRoute', (route) => {
    const operation = (route.config as { operation?: string } | undefined)?.operation ?? null;
    for (const method of [route.method].flat()) routes.push([String(method), route.url, operation]);
  });
  const deps: AdminDeps = {
    paths,
    tables,
    vault: plainVault,
    clock,
    log,
    authenticator,
    requestsPerMinute: 1_000_000,
    checkHost: (url) => (url.startsWith('https://') ? null : 'must start with https://'),
    publicUrl: () => 'https://sluice.example',
    // As if the server were about to stop: answers of events end after their first turn, and tests walk all routes.
    stopping: AbortSignal.abort(),
    ...options.admin,
    services: withDefaults(options.admin?.services ?? new Services(), clock, tables),
  };
  registerAdmin(app, deps);
  registerRows(app, options.rows ?? [], deps);
  registerOperator(app, { ...deps, health: async () => ({ status: 'ok' }) });
  options.register?.(app, deps);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return {
    app,
    url,
    tables,
    authenticator,
    operatorKey,
    a,
    b,
    logged,
    routes,
    call: async (method, path, call = {}) => {
      const body = call.raw ?? (call.body === undefined ? undefined : JSON.stringify(call.body));
      const key = call.key === undefined ? a.admin_api_key : call.key;
      const answer = await fetch(`${url}${path}`, {
        method,
        headers: {
          ...(key === null ? {} : { 'x-gateway-api-key': key }),
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...call.headers,
        },
        ...(body === undefined ? {} : { body: body as NonNullable<RequestInit['body']> }),
      });
      const text = await answer.text();
      const events = answer.headers.get('content-type')?.startsWith('text/event-stream') === true;
      const parsed = text === '' || events ? null : JSON.parse(text);
      return { status: answer.status, headers: answer.headers, text, body: parsed };
    },
    close: async () => {
      await app.close();
      await tables.close();
    },
  };
}
