/**
 * kill -9 at each step of gateway-managed fine-tuning jobs:
 * `npm run test:jobs -- [--kills 50] [--store sqlite|postgres] [--seed 1]`.
 *
 * A real server process runs jobs on two strict providers on loopback: one that gives ids to uploaded files, and one
 * whose files are objects of a bucket, uploaded in parts. A gate before each of them kills the server when a chosen call
 * arrives (before the provider hears of it), in the middle of its body, or after the provider has done it and before the
 * answer leaves. The server is started again on the same data, while jobs of earlier rounds are still under way. In the
 * end every job is in one final state with each transition told once, no job runs at a provider that ours does not know,
 * and nothing lies there that belongs to no successful job.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, request as httpRequest, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { silentLog } from '../../src/kernel/log.ts';
import type { FineTuningJob } from '../../src/operations/training.ts';
import { openPostgresTables } from '../../src/store/postgres/tables.ts';
import { openSqliteTables } from '../../src/store/sqlite/tables.ts';
import { killAll, readFirstRun, type ServerProcess, startReady, stopProcess } from '../support/process.ts';
import { S3_REGION, startS3Server } from '../support/s3-server.ts';
import { AWS_KEYS, ROLE, startBedrock } from '../support/upstreams/bedrock.ts';
import { startOpenAiObjects } from '../support/upstreams/openai.ts';
import { watchdog } from '../support/watchdog.ts';

const BUCKET = 'training-bucket';
/** A round ends after so long without its call: the server is then killed wherever it is. */
const PATIENCE_MS = 30_000;
const END_MS = 300_000;
/** Longer than any call takes here on a slow machine. */
const ANSWER_MS = 30_000;
/** When waiting is given up. */
let last = Number.POSITIVE_INFINITY;

const { values: options } = parseArgs({
  options: {
    kills: { type: 'string', default: '50' },
    /** Number of the first moment. */
    from: { type: 'string', default: '0' },
    store: { type: 'string', default: 'sqlite' },
    seed: { type: 'string' },
    verbose: { type: 'boolean' },
  },
});
const kills = Number(options.kills);
const seed = Number(options.seed ?? Math.floor(performance.timeOrigin) % 1_000_000);

/** A small seeded generator: a failing run can be repeated. */
let state = seed >>> 0;
function next(): number {
  state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
  return state / 2 ** 32;
}
const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

process.on('exit', killAll);
const watch = watchdog(
  'jobs',
  () => `waits for ${trap?.when} ${trap?.call}; reached ${JSON.stringify([...reached])}\n${server.err.slice(-2000)}`,
);

type When = 'before' | 'during' | 'after';

/** Where the server is to die next; null when nowhere. */
let trap: { readonly call: string; readonly when: When; readonly sprung: () => void } | null = null;

function springs(call: string, when: When): boolean {
  if (trap === null || trap.call !== call || trap.when !== when) return false;
  const { sprung } = trap;
  trap = null;
  sprung();
  return true;
}

interface Gate {
  readonly url: string;
  stop(): void;
}

/** Passes requests on byte by byte, `Host` included, because signatures cover it. */
async function startGate(
  port: number,
  nameOf: (method: string, url: URL) => string,
  heard: (call: string, url: URL) => Promise<void> | void,
): Promise<Gate> {
  const server = createServer((incoming: IncomingMessage, outgoing) => {
    const url = new URL(incoming.url ?? '/', 'http://gate');
    const call = nameOf(incoming.method ?? '', url);
    outgoing.on('error', () => {});
    incoming.on('error', () => {});
    if (springs(call, 'before')) {
      incoming.destroy();
      return;
    }
    void Promise.resolve(heard(call, url)).then(() => {
      const passed = httpRequest({
        port,
        method: incoming.method,
        path: incoming.url,
        headers: incoming.headers,
        setHost: false,
      });
      passed.on('error', () => outgoing.destroy());
      passed.on('response', (answer) => {
        if (springs(call, 'after')) {
          answer.destroy();
          outgoing.destroy();
          return;
        }
        outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
        answer.pipe(outgoing);
      });
      incoming.on('close', () => {
        if (!incoming.complete) passed.destroy();
      });
      incoming.on('data', (chunk: Buffer) => {
        if (trap?.call === call && trap.when === 'during') {
          passed.write(chunk.subarray(0, Math.floor(chunk.length / 2)));
          springs(call, 'during');
          passed.destroy();
          incoming.destroy();
          return;
        }
        if (!passed.destroyed && !passed.write(chunk)) {
          incoming.pause();
          passed.once('drain', () => incoming.resume());
        }
      });
      incoming.on('end', () => passed.end());
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const postgres =
  options.store === 'postgres' ? await (await import('../support/postgres-server.ts')).startPostgres() : null;
const databaseUrl = postgres === null ? null : await postgres.database();
const openai = await startOpenAiObjects();
const bedrock = await startBedrock({ now: Date.now });
const s3 = await startS3Server({ buckets: [BUCKET], keys: [AWS_KEYS], region: S3_REGION, minPart: 5 * 1024 * 1024 });

const FAILS = /fails/;
/** Such a job runs until it is cancelled. */
const STAYS = /stays/;

/** A job ends with the first look at it. */
const openaiGate = await startGate(
  openai.port,
  (method, url) => `${method} ${url.pathname.replace(/(file|ftjob)-[^/]+/, ':id')}`,
  (call, url) => {
    if (call !== 'GET /v1/fine_tuning/jobs/:id') return;
    const id = url.pathname.split('/').at(-1) ?? '';
    const job = openai.state.jobs.get(id);
    if (job === undefined || job.status !== 'validating_files') return;
    const at = Math.floor(Date.now() / 1000);
    if (STAYS.test(String(job.user_provided_suffix))) {
      job.status = 'running';
      return;
    }
    if (FAILS.test(String(job.user_provided_suffix))) {
      Object.assign(job, { status: 'failed', finished_at: at, error: { code: 'x', message: 'broken', param: null } });
      return;
    }
    const result = `file-result${id.slice(6)}`;
    openai.state.files.set(result, {
      id: result,
      object: 'file',
      bytes: 4,
      created_at: at,
      filename: 'metrics.csv',
      purpose: 'fine-tune-results',
      status: 'processed',
    });
    openai.state.contents.set(result, Buffer.from('a,b\n'));
    Object.assign(job, {
      status: 'succeeded',
      finished_at: at,
      fine_tuned_model: `ft:${id}`,
      trained_tokens: 5,
      result_files: [result],
    });
  },
);
const bedrockGate = await startGate(
  bedrock.port,
  (method, url) => `${method} ${url.pathname.replace(/jobs\/[^/]+/, 'jobs/:id')}`,
  async (call, url) => {
    if (call !== 'GET /model-customization-jobs/:id') return;
    const name = decodeURIComponent(url.pathname.split('/').at(-1) ?? '');
    const job = bedrock.jobs.find((one) => one.jobArn === name);
    if (job === undefined || job.status !== 'InProgress') return;
    // The answer to the creation asks once; what is asked later finds the end.
    job.looks = Number(job.looks ?? 0) + 1;
    if (job.looks === 1 || STAYS.test(String(job.outputModelName))) return;
    const fails = FAILS.test(String(job.outputModelName));
    Object.assign(job, { status: fails ? 'Failed' : 'Completed', endTime: new Date().toISOString() });
    if (fails) return;
    job.outputModelArn = `arn:aws:bedrock:eu-central-1:123456789012:custom-model/${String(job.outputModelName)}`;
    const folder = String((job.outputDataConfig as { s3Uri: string }).s3Uri).replace(`s3://${BUCKET}/`, '');
    const id = name.slice(name.lastIndexOf('/') + 1);
    const path = `${folder.replace(/\/?$/, '/')}model-customization-job-${id}/training_artifacts`;
    await s3.put(BUCKET, `${path}/step_wise_training_metrics.csv`, 'a,b\n');
  },
);
const s3Gate = await startGate(
  s3.port,
  (method, url) => {
    const part = url.searchParams.has('partNumber') ? ' part' : '';
    const uploads = url.searchParams.has('uploads') ? ' uploads' : url.searchParams.has('uploadId') ? ' upload' : '';
    return `${method} s3${part || uploads}`;
  },
  () => {},
);

/** Each call of a job's life, in its order, and the moments it may be killed at. */
const POINTS: readonly (readonly [call: string, ...when: When[]])[] = [
  ['POST /v1/files', 'before', 'during', 'after'],
  ['POST s3 uploads', 'before', 'after'],
  ['PUT s3 part', 'before', 'during', 'after'],
  ['POST s3 upload', 'before', 'after'],
  ['POST /v1/fine_tuning/jobs', 'before', 'after'],
  ['POST /model-customization-jobs', 'before', 'after'],
  ['GET /v1/fine_tuning/jobs/:id', 'before', 'after'],
  ['GET /model-customization-jobs/:id', 'before', 'after'],
  ['GET /v1/fine_tuning/jobs/:id/events', 'before', 'after'],
  ['GET /v1/files/:id/content', 'before', 'after'],
  ['GET s3', 'before', 'after'],
  ['DELETE /v1/files/:id', 'before', 'after'],
  ['DELETE s3', 'before', 'after'],
  ['POST /v1/fine_tuning/jobs/:id/cancel', 'before', 'after'],
  ['POST /model-customization-jobs/:id/stop', 'before', 'after'],
];
const traps = POINTS.flatMap(([call, ...whens]) => whens.map((when) => ({ call, when })));

function start(dataDir: string): Promise<ServerProcess> {
  const hosts = [openaiGate, bedrockGate, s3Gate].map((gate) => new URL(gate.url).host);
  const env = {
    SLUICE_LOG_LEVEL: options.verbose ? 'info' : 'error',
    SLUICE_TRUSTED_HOSTS: hosts.join(','),
    SLUICE_ADMIN_REQUESTS_PER_MINUTE: '1000000',
    ...(databaseUrl === null ? {} : { SLUICE_DATABASE_URL: databaseUrl }),
  };
  return startReady(dataDir, env, options.verbose ? ['stdout', 'stderr'] : ['stderr']);
}

const row = (text: string) =>
  `${JSON.stringify({
    messages: [
      { role: 'user', content: text },
      { role: 'assistant', content: 'Yes.' },
    ],
  })}\n`;
const SMALL = Array.from({ length: 12 }, (_, i) => row(`question ${i}`)).join('');
/** More than one part; long words make it quick to count. */
const LARGE = Array.from({ length: 90 }, (_, i) => row(`${i} ${'abcdefgh '.repeat(13_000)}`)).join('');

const began = performance.now();
const dataDir = mkdtempSync(join(tmpdir(), 'sluice-jobs-'));
watch.phase('start');
let server = await start(dataDir);
const first = await readFirstRun(dataDir);

async function call<T>(method: string, path: string, body?: unknown, key = first.workspace_api_key): Promise<T> {
  const form = body instanceof FormData;
  const answer = await fetch(`${server.url}/v1${path}`, {
    method,
    signal: AbortSignal.timeout(ANSWER_MS),
    headers: {
      'x-gateway-api-key': key,
      'x-gateway-provider': 'gateway',
      ...(body === undefined || form ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: form ? body : JSON.stringify(body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return JSON.parse(text) as T;
}

async function account(id: string, key: string, configurations: object): Promise<void> {
  const admin = first.admin_api_key;
  const integration = { name: id, slug: `${id}-int`, ai_provider_id: id, key, configurations };
  await call('POST', '/integrations', integration, admin);
  const { workspace_id } = first;
  await call('POST', '/providers', { name: id, slug: `${id}-prod`, integration_id: `${id}-int`, workspace_id }, admin);
}

async function upload(name: string, text: string): Promise<string> {
  const form = new FormData();
  form.set('purpose', 'fine-tune');
  form.set('file', new Blob([text]), name);
  return (await call<{ id: string }>('POST', '/files', form)).id;
}

await account('openai', 'test-key', { custom_host: `${openaiGate.url}/v1` });
await account('bedrock', 'unused', {
  custom_host: bedrockGate.url,
  aws_auth_type: 'accessKey',
  aws_region: S3_REGION,
  aws_access_key_id: AWS_KEYS.accessKeyId,
  aws_secret_access_key: AWS_KEYS.secretAccessKey,
  aws_s3_endpoint: s3Gate.url,
});
const small = await upload('small.jsonl', SMALL);
const large = await upload('large.jsonl', LARGE);

const method = {
  type: 'supervised',
  supervised: { hyperparameters: { n_epochs: 2, learning_rate_multiplier: 1, batch_size: 1 } },
};
const made: { readonly id: string; readonly suffix: string }[] = [];

async function create(provider: 'openai' | 'bedrock', suffix: string): Promise<string> {
  const body =
    provider === 'openai'
      ? {
          model: 'gpt-4o-mini',
          training_file: small,
          gateway_options: { 'x-gateway-virtual-key': 'openai-prod' },
        }
      : {
          model: 'amazon.nova-lite-v1:0:300k',
          training_file: large,
          role_arn: ROLE,
          gateway_options: { 'x-gateway-provider': '@bedrock-prod', 'x-gateway-object-store-bucket': BUCKET },
        };
  const { id } = await call<FineTuningJob>('POST', '/fine_tuning/jobs', { ...body, suffix, method });
  made.push({ id, suffix });
  return id;
}

/** Cancels in the middle of what goes on, and again after a kill, until the job has ended. */
async function cancelAfter(id: string, ms: number): Promise<void> {
  await sleep(ms);
  while (performance.now() < last) {
    const job = await call<FineTuningJob>('POST', `/fine_tuning/jobs/${id}/cancel`).catch(() => null);
    if (job !== null) return;
    const now = await call<FineTuningJob>('GET', `/fine_tuning/jobs/${id}`).catch(() => null);
    if (now !== null && /^(succeeded|failed|cancelled)$/.test(now.status)) return;
    await sleep(200);
  }
}

/** A short run visits the whole life of a job, too. */
const stride = Math.max(1, traps.length / kills);
const reached = new Map<string, number>();
const cancelling: Promise<void>[] = [];
let elsewhere = 0;
for (let kill = 0; kill < kills; kill++) {
  const point = traps[(Number(options.from) + Math.floor(kill * stride)) % traps.length];
  if (point === undefined) break;
  watch.phase(`kill ${kill + 1}, ${point.when} ${point.call}`);
  const sprung = new Promise<boolean>((resolve) => {
    trap = {
      ...point,
      sprung: () => {
        server.child.kill('SIGKILL');
        resolve(true);
      },
    };
    void sleep(PATIENCE_MS + next() * 1_000).then(() => resolve(false));
  });
  const wantsFailure = point.call.startsWith('DELETE');
  const wantsCancel = point.call.endsWith('/cancel') || point.call.endsWith('/stop') || next() < 0.15;
  const onS3 = point.call.includes('s3') || point.call.includes('customization');
  const suffix = `k${kill}${wantsFailure ? 'fails' : wantsCancel ? 'stays' : ''}`;
  const id = await create(onS3 ? 'bedrock' : 'openai', suffix).catch(() => null);
  if (wantsCancel && id !== null) cancelling.push(cancelAfter(id, next() * 8_000));
  if (await sprung) {
    const name = `${point.call} ${point.when}`;
    reached.set(name, (reached.get(name) ?? 0) + 1);
  } else elsewhere += 1;
  trap = null;
  await stopProcess(server, 'SIGKILL');
  server = await start(dataDir);
}

watch.phase('all jobs end', END_MS + 30_000);
const tables =
  databaseUrl === null
    ? await openSqliteTables({ file: join(dataDir, 'control.db'), log: silentLog })
    : await openPostgresTables({ url: databaseUrl, log: silentLog });
const rows = () => tables.systemRead((tx) => tx.list('training_jobs', {}));
last = performance.now() + END_MS;
// The answer to a creation may have been lost with the server, so that nobody knew the job it made.
for (const one of await rows()) if (STAYS.test(String(one.job.suffix))) cancelling.push(cancelAfter(one.id, 0));
await Promise.all(cancelling);
while ((await rows()).some((one) => one.step !== 'done') && performance.now() < last) await sleep(250);
const ended = await rows();
const events = await tables.systemRead((tx) => tx.list('training_events', {}));
await stopProcess(server, 'SIGTERM');
await tables.close();

/** Jobs at the providers by the suffix of ours. */
const upstream = new Map<string, string[]>();
const noted = (suffix: unknown, status: unknown) =>
  upstream.set(String(suffix), [...(upstream.get(String(suffix)) ?? []), String(status)]);
for (const job of openai.state.jobs.values()) noted(job.user_provided_suffix, job.status);
for (const job of bedrock.jobs) noted(job.outputModelName, job.status);

const OVER = /^(succeeded|failed|cancelled|Completed|Failed|Stopping|Stopped)$/;
const faults: Record<string, string[]> = {
  'jobs that did not end': ended.filter((one) => one.step !== 'done').map((one) => `${one.id} ${one.step}`),
  'jobs that were accepted and are gone': made
    .filter(({ id }) => !ended.some((one) => one.id === id))
    .map(({ id }) => id),
  'jobs made twice at a provider': [...upstream].filter(([, all]) => all.length > 1).map(([suffix]) => suffix),
  'jobs at a provider that still run': [...upstream]
    .filter(([, all]) => all.some((status) => !OVER.test(status)))
    .map(([suffix]) => suffix),
  'jobs that succeeded without one at the provider': ended
    .filter((one) => one.status === 'succeeded' && upstream.get(String(one.job.suffix))?.length !== 1)
    .map((one) => one.id),
  'jobs that failed for the gateway': ended
    .filter((one) => one.status === 'failed' && !FAILS.test(String(one.job.suffix)))
    .map((one) => `${one.id} ${JSON.stringify(one.job.error)}`),
  'transitions that were told twice or out of order': ended
    .filter((one) => {
      const told = events
        .filter((event) => event.job_id === one.id && event.data?.type === 'status')
        .sort((a, b) => a.seq - b.seq)
        .map((event) => String(event.data?.status));
      return new Set(told).size !== told.length || told[0] !== 'validating_files' || told.at(-1) !== one.status;
    })
    .map((one) => one.id),
  'open multipart uploads': s3.openUploads(BUCKET),
  'files at a provider that belong to no successful job': [
    ...[...openai.state.files.values()].filter((one) => one.purpose === 'fine-tune').map((one) => String(one.filename)),
    ...s3.keys(BUCKET).filter((key) => key.includes('sluice-')),
  ].filter((name) => {
    const owner = ended.find((one) => name.includes(one.id.replace('gw_ftjob_', '')));
    return owner?.status !== 'succeeded' || name.includes('/model-customization-job-');
  }),
  'calls outside the published definitions': [...openai.faults, ...bedrock.faults, ...s3.faults],
};

const seconds = Math.round((performance.now() - began) / 1000);
let failed = 0;
for (const [id, found] of Object.entries(faults)) {
  if (found.length > 0) failed += 1;
  const pass = found.length === 0;
  process.stdout.write(
    `${JSON.stringify({ id, value: found.length, goal: 0, pass, n: ended.length, seconds, seed, store: options.store, kills })}\n`,
  );
  if (!pass) process.stdout.write(`  ${found.slice(0, 5).join('\n  ')}\n`);
}
const counted = Object.groupBy(ended, (one) => one.status);
const ends = Object.entries(counted).map(([status, all]) => `${all?.length ?? 0} ${status}`);
process.stdout.write(`${JSON.stringify({ reached: Object.fromEntries(reached), elsewhere })}\n`);
const enough = reached.size >= Math.min(kills, traps.length) * 0.6;
if (!enough) process.stdout.write('too few of the chosen moments were reached\n');
process.stdout.write(
  `jobs: ${kills} kills in ${seconds} s, ${ended.length} jobs (${ends.join(', ')}), ${failed} of ${Object.keys(faults).length} checks failed\n`,
);

rmSync(dataDir, { recursive: true, force: true });
for (const gate of [openaiGate, bedrockGate, s3Gate]) gate.stop();
await Promise.all([openai.stop(), bedrock.stop(), s3.stop(), postgres?.stop()]);
process.exit(failed === 0 && enough ? 0 : 1);
