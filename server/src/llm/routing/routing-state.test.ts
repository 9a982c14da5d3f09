/** What one target of a config did or left behind, and what the next one and the next request see of it: nothing. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import {
  answerOf,
  balanced,
  chat,
  fails,
  fallback,
  ok,
  type RoutingServer,
  startRouting,
  target,
} from '../../../test/support/routing.ts';
import { chatStream } from '../../../test/support/streams.ts';
import { type Received, sendEvents } from '../../../test/support/upstream.ts';
import { systemClock } from '../../kernel/clock.ts';

let routing: RoutingServer;
/** How far the clock of requests is ahead, milliseconds. */
let ahead = 0;

beforeAll(async () => {
  const clock = { ...systemClock, now: () => systemClock.now() + ahead };
  routing = await startRouting({}, { clock });
});
afterAll(() => routing?.stop());
beforeEach(() => {
  ahead = 0;
  routing.reset();
});

const bodyOf = (name: string, at = 0) =>
  JSON.parse((routing.of(name).received[at] as Received).body.toString('utf8')) as Record<string, unknown>;
const FIRST = 'config.targets[0]';
const SECOND = 'config.targets[1]';
const forbids = (word: string) => ({ 'default.contains': { words: [word], operator: 'none' }, deny: true });
const redacts = { 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true }, deny: false };
const saying = (content: string) => ({ messages: [{ role: 'user', content }] });

describe('the next target', () => {
  it('gets its own parameters also where guardrails have looked at those of the one before', async () => {
    routing.of('a').answer = fails(500);
    const config = fallback([
      target('a', { input_guardrails: [redacts], override_params: { temperature: 0.1 } }),
      target('b', { override_params: { temperature: 0.9 } }),
    ]);
    const said = saying('I am ada@example.org');
    expect(await routing.ask(config, said)).toMatchObject({ status: 200, path: SECOND });
    expect(bodyOf('a')).toMatchObject({ temperature: 0.1 });
    expect(JSON.stringify(bodyOf('a'))).not.toContain('ada@');
    expect(bodyOf('b')).toEqual({ ...chat(said), temperature: 0.9 });
  });

  it('gets a stream with what the caller asked of it, after one whose request was made shorter', async () => {
    routing.of('a').answer = fails(500);
    routing.of('b').answer = (_request, response) => sendEvents(response, chatStream('hi'));
    const config = fallback([target('a', { input_guardrails: [redacts] }), target('b')]);
    const extra = {
      ...saying('I am a.very.long.name@example.org'),
      stream: true,
      stream_options: { include_usage: false },
    };
    const told = await routing.ask(config, extra);
    expect(told).toMatchObject({ status: 200, path: SECOND });
    expect(told.text).not.toContain('"usage":{');
    expect(bodyOf('b')).toEqual({ ...chat(extra), stream_options: { include_usage: true } });
  });

  it('is asked for an answer in one piece, after one that began a stream nobody wanted', async () => {
    routing.of('a').answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write('data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant"}}]}\n\n');
      setImmediate(() => response.destroy());
    };
    const told = await routing.ask(fallback([target('a'), target('b')]));
    expect(told).toMatchObject({ status: 200, path: SECOND });
    expect(routing.of('b').received[0]?.headers.accept).not.toContain('event-stream');
    expect((await routing.server.records())[0]).toMatchObject({ stream: false, outcome: 'ok', error_code: null });
  });

  it('is chosen by what the caller sent, not by what was made of it for another target', async () => {
    routing.of('a').answer = fails(500);
    const mine = {
      strategy: {
        mode: 'conditional',
        // biome-ignore lint/suspicious/noThenProperty: the name is the contract's
        conditions: [{ query: { 'params.user': 'me' }, then: 'mine' }],
        default: 'other',
      },
      targets: [target('c', { name: 'other' }), target('b', { name: 'mine' })],
    };
    const first = target('a', { input_guardrails: [redacts], override_params: { user: 'somebody' } });
    expect(await routing.ask(fallback([first, mine]), { ...saying('I am ada@example.org'), user: 'me' })).toMatchObject(
      {
        path: 'config.targets[1].targets[1]',
      },
    );
  });

  it('after a stream that failed before its first content is asked where a group around says so', async () => {
    for (const name of ['a', 'b'])
      routing.of(name).answer = (_request, response) => {
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.end('data: {"error":{"message":"overloaded","type":"server_error","code":null}}\n\n');
      };
    routing.of('c').answer = (_request, response) => sendEvents(response, chatStream('from c'));
    const inner = fallback([target('a'), target('b')], { on_status_codes: [429] });
    const told = await routing.ask(fallback([inner, target('c')]), { stream: true });
    expect(told).toMatchObject({ status: 200, path: SECOND });
    expect(told.text).toContain('from c');
    expect(routing.counts()).toEqual([1, 0, 1]);
  });

  it('after the last of a group whose stream failed before its first content is that of the group around', async () => {
    routing.of('a').answer = fails(500);
    routing.of('b').answer = (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end('data: {"error":{"message":"overloaded","type":"server_error","code":null}}\n\n');
    };
    routing.of('c').answer = (_request, response) => sendEvents(response, chatStream('from c'));
    const told = await routing.ask(fallback([fallback([target('a'), target('b')]), target('c')]), { stream: true });
    expect(told).toMatchObject({ status: 200, path: SECOND });
    expect(told.text).toContain('from c');
    expect(routing.counts()).toEqual([1, 1, 1]);
  });

  it.each([
    ['as it should be', chatStream('from a')],
    ['without saying why it ends', [...chatStream('from a').slice(0, 2), 'data: [DONE]\n\n']],
  ])(
    'is not asked again for a stream that was shown to its end, %s, though its success is listed',
    async (_how, events) => {
      routing.of('a').answer = (_request, response) => sendEvents(response, events);
      const config = {
        ...fallback(
          [target('a'), { ...target('b'), provider: 'groq', api_key: 'k', custom_host: `${routing.of('b').url}/v1` }],
          {
            on_status_codes: [200],
          },
        ),
        stream: { on_break: 'continue' },
      };
      const told = await routing.ask(config, { stream: true });
      expect(told).toMatchObject({ status: 200, path: FIRST });
      expect(told.text).toContain('from a');
      expect(routing.counts()).toEqual([1, 0, 0]);
    },
  );

  it('is left out when it was found to fail while the one before was waited for', async () => {
    const cb_config = { failure_threshold: 1, cooldown_interval: 30_000 };
    const slug = await routing.saved({
      ...fallback([target('a', { cb_config: undefined }), target('b', { cb_config })]),
    });
    let release: () => void = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    let arrived: () => void = () => {};
    const waiting = new Promise<void>((resolve) => {
      arrived = resolve;
    });
    routing.of('a').answer = (request, response) => {
      arrived();
      void held.then(() => fails(500)(request, response));
    };
    const slow = routing.ask(slug);
    await waiting;
    for (const name of ['a', 'b']) routing.of(name).answer = fails(503);
    expect(await routing.ask(slug)).toMatchObject({ status: 503, path: SECOND });
    release();
    expect(await slow).toMatchObject({ status: 500, path: FIRST });
    expect(routing.counts()).toEqual([2, 1, 0]);
  });

  it('is asked all the same when all of a fallback are left out', async () => {
    const cb_config = { failure_threshold: 1, cooldown_interval: 30_000 };
    const slug = await routing.saved({ ...fallback([target('a'), target('b')]), cb_config });
    for (const name of ['a', 'b']) routing.of(name).answer = fails(503);
    for (let i = 0; i < 3; i++) expect(await routing.ask(slug)).toMatchObject({ status: 503, path: SECOND });
    expect(routing.counts()).toEqual([3, 3, 0]);
  });

  it('is not asked when the refusal of a guardrail is told as an answer', async () => {
    const first = target('a', { input_guardrails: [{ ...forbids('secret'), soft_deny_200: true }] });
    const told = await routing.ask(fallback([first, target('b')]), saying('a secret'));
    expect(told).toMatchObject({ status: 200, path: FIRST });
    expect(routing.counts()).toEqual([0, 0, 0]);
  });
});

describe('the next request', () => {
  it('does not get from the cache of one target what another has answered', async () => {
    const config = fallback([target('a', { cache: { mode: 'simple' } }), target('b')]);
    routing.of('a').answer = fails(500);
    expect(await routing.ask(config, saying('cached?'))).toMatchObject({ status: 200, path: SECOND });
    routing.of('a').answer = ok('a');
    const told = await routing.ask(config, saying('cached?'));
    expect([told.path, told.headers.get('x-gateway-cache-status')]).toEqual([FIRST, 'MISS']);
    expect(JSON.parse(told.text)).toEqual(answerOf('a'));
  });

  it('brings its own credential: that of another caller is never sent for it', async () => {
    const own = { provider: 'openai', custom_host: `${routing.of('a').url}/v1` };
    const slug = await routing.saved(fallback([own, target('b')]));
    for (const key of ['sk-first', 'sk-second'])
      expect(await routing.ask(slug, {}, { authorization: `Bearer ${key}` })).toMatchObject({
        status: 200,
        path: FIRST,
      });
    expect(routing.of('a').received.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer sk-first',
      'Bearer sk-second',
    ]);
    // One that brings none gets none.
    expect(await routing.ask(slug)).toMatchObject({ status: 200, path: SECOND });
  });

  it('meets a provider until it expires, and the next target from then on', async () => {
    const slug = await routing.saved(fallback([target('c'), target('b')]));
    const expires = (at: string | null) => routing.server.admin('PUT', '/providers/c', { expires_at: at });
    expect((await expires(new Date(systemClock.now() + 3_600_000).toISOString())).status).toBe(200);
    try {
      for (let i = 0; i < 2; i++) expect(await routing.ask(slug)).toMatchObject({ status: 200, path: FIRST });
      ahead = 3_600_000;
      for (let i = 0; i < 2; i++) expect(await routing.ask(slug)).toMatchObject({ status: 200, path: SECOND });
    } finally {
      await expires(null);
    }
    expect(routing.counts()).toEqual([0, 2, 2]);
  });

  it('goes by a version that was restored, and by none of a config that is archived', async () => {
    const slug = await routing.saved(target('a'));
    const [before] = (await routing.server.admin('GET', `/configs/${slug}/versions`)).body.data as {
      version_id: string;
    }[];
    expect((await routing.ask(slug)).text).toContain('from a');
    expect((await routing.server.admin('PUT', `/configs/${slug}`, { config: target('b') })).status).toBe(200);
    expect((await routing.ask(slug)).text).toContain('from b');
    const path = `/configs/${slug}/versions/${before?.version_id}/restore`;
    expect((await routing.server.admin('POST', path)).status).toBe(200);
    expect((await routing.ask(slug)).text).toContain('from a');
    expect((await routing.server.admin('DELETE', `/configs/${slug}`)).status).toBe(200);
    const refused = await routing.ask(slug);
    expect(refused.status).toBe(400);
    expect(routing.counts()).toEqual([2, 1, 0]);
  });

  it('meets a target without a weight only where somebody names it, whatever fails', async () => {
    const cb_config = { failure_threshold: 1, cooldown_interval: 30_000 };
    const slug = await routing.saved({ ...balanced([target('a'), target('b', { weight: 0 })]), cb_config });
    routing.of('a').answer = fails(503);
    for (let i = 0; i < 3; i++) expect(await routing.ask(slug)).toMatchObject({ status: 503, path: FIRST });
    expect(routing.counts()).toEqual([3, 0, 0]);
  });
});

it('a dry run shows the first target also where its success would be passed over', async () => {
  const config = fallback([target('a'), target('b')], { on_status_codes: [200] });
  const told = await routing.ask(config, {}, { 'x-gateway-dry-run': 'true' });
  expect(JSON.parse(told.text)).toMatchObject({ dry_run: true, target: { path: FIRST, provider_slug: 'a' } });
});
