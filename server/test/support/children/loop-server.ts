/** A server in a process of its own, which says how long its event loop is held: for `loop-delay.long.test.ts` and `slow/neighbour.ts`. */
import { Session } from 'node:inspector/promises';
import { type PerformanceEntry, PerformanceObserver } from 'node:perf_hooks';
import { startServer } from '../server.ts';

const { port } = JSON.parse(process.argv[2] ?? '{}') as { port: number };
const server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${port}` });
const host = `http://127.0.0.1:${port}/v1`;
for (const id of ['openai', 'anthropic', 'google', 'groq', 'cohere', 'together-ai'])
  await server.provider({ id, host, slug: id });
const configurations = {
  aws_auth_type: 'accessKey',
  aws_access_key_id: 'AKIDEXAMPLE',
  aws_secret_access_key: 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY',
  aws_region: 'us-east-1',
};
await server.provider({ id: 'bedrock', host: `http://127.0.0.1:${port}`, slug: 'bedrock', key: null, configurations });
/** An account that two workspaces share: whose the objects of a body are is looked up. */
const shared = { name: 'shared', slug: 'shared', ai_provider_id: 'openai', key: 'sk-shared' };
await server.admin('POST', '/integrations', { ...shared, configurations: { custom_host: host } });
const second = await server.admin('POST', '/admin/workspaces', { name: 'Second', slug: 'second' });
const entries = [server.first.workspace_id, second.body.id].map((id) => ({
  id,
  enabled: true,
  create_default_provider: false,
}));
await server.admin('PUT', '/integrations/shared/workspaces', { workspaces: entries });
const bound = { name: 'shared', slug: 'shared', integration_id: 'shared', workspace_id: server.first.workspace_id };
await server.admin('POST', '/providers', bound);

/** A later organisation, which is in saved-only mode: its virtual key leads to the same upstream. */
const made = await server.admin(
  'POST',
  '/operator/organisations',
  { name: 'Later', owner: { email: 'o@later.example', first_name: 'O', last_name: 'L' } },
  server.first.operator_api_key,
);
const other = made.body as { workspace_id: string; admin_api_key: string; workspace_api_key: string };
const { workspace_id } = other;
for (const id of ['openai', 'anthropic', 'google', 'together-ai']) {
  const integration = { name: id, slug: id, ai_provider_id: id, key: 'sk-other', workspace_id };
  const given = { ...integration, create_default_provider: false, configurations: { custom_host: host } };
  await server.admin('POST', '/integrations', given, other.admin_api_key);
  const provider = { name: id, slug: id, integration_id: id, workspace_id };
  await server.admin('POST', '/providers', provider, other.admin_api_key);
}

/** Milliseconds of CPU of this thread alone: neither other processes nor the collector's threads add to it. */
const cpu = (): number => {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
};

let longest = 0;
let last = cpu();
let watching = false;

/** One turn of the event loop, with all callbacks that ran in it: as long as this nobody else is served. */
function turn(): void {
  const now = cpu();
  longest = Math.max(longest, now - last);
  last = now;
  if (watching) setImmediate(turn);
}

/** Samples of what the main thread does, every 100 µs, and its garbage collections by kind. */
let session: Session | null = null;
let collections: Record<string, number[]> = {};
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) {
    const { kind } = (one as PerformanceEntry & { detail: { kind: number } }).detail;
    collections[kind] = [...(collections[kind] ?? []), one.duration];
  }
}).observe({ entryTypes: ['gc'] });

async function startProfile(): Promise<void> {
  collections = {};
  session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.setSamplingInterval', { interval: 100 });
  await session.post('Profiler.start');
  process.send?.('profiles');
}

async function endProfile(): Promise<void> {
  const given = await session?.post('Profiler.stop');
  session?.disconnect();
  process.send?.({ profile: given?.profile, collections });
}

process.on('message', (what: 'watch' | 'tell' | 'stop' | 'profile' | 'profiled') => {
  if (what === 'watch') {
    globalThis.gc?.();
    longest = 0;
    last = cpu();
    if (!watching) {
      watching = true;
      setImmediate(turn);
    }
    process.send?.({ watching });
  } else if (what === 'tell') {
    watching = false;
    turn();
    process.send?.({ longest });
  } else if (what === 'profile') void startProfile();
  else if (what === 'profiled') void endProfile();
  else void server.stop().then(() => process.exit(0));
});
process.send?.({
  url: server.url,
  key: server.first.workspace_api_key,
  other: other.workspace_api_key,
  admin: server.first.admin_api_key,
  workspace: server.first.workspace_id,
});
