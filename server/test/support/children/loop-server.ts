/** A server in a process of its own, which says how long its event loop is held: for `loop-delay.test.ts`. */
import { startServer } from '../server.ts';

const { port } = JSON.parse(process.argv[2] ?? '{}') as { port: number };
const server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${port}` });
const host = `http://127.0.0.1:${port}/v1`;
for (const id of ['openai', 'anthropic', 'google', 'groq', 'cohere']) await server.provider({ id, host, slug: id });

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

process.on('message', (what: 'watch' | 'tell' | 'stop') => {
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
  } else void server.stop().then(() => process.exit(0));
});
process.send?.({ url: server.url, key: server.first.workspace_api_key });
