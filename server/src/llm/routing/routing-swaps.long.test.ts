import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { answerOf, fallback, type RoutingServer, startRouting, target } from '../../../test/support/routing.ts';
import { sendJson } from '../../../test/support/upstream.ts';

let routing: RoutingServer;

beforeAll(async () => {
  routing = await startRouting();
});
afterAll(() => routing?.stop());

const SWAPS = 1000;

describe('configs that change while they are used', () => {
  it('a thousand swaps, a fifth of them invalid: no request fails, and each goes by one version', async () => {
    // Every version says its number in both targets; the first always fails, so that a request meets both.
    const version = (n: number) =>
      fallback([
        target('a', { override_params: { user: `v${n}` } }),
        target('b', { override_params: { user: `v${n}` }, default_params: { seed: n } }),
      ]);
    const slug = await routing.saved(version(0));
    const mixed: string[] = [];
    const seen = new Map<string, string>();
    routing.of('a').answer = (request, response) => {
      const { user, metadata } = JSON.parse(request.body.toString('utf8')) as {
        user: string;
        metadata: { id: string };
      };
      seen.set(metadata.id, user);
      sendJson(response, 500, { error: { message: 'no', type: 'server_error' } });
    };
    routing.of('b').answer = (request, response) => {
      const body = JSON.parse(request.body.toString('utf8')) as {
        user: string;
        seed: number;
        metadata: { id: string };
      };
      const first = seen.get(body.metadata.id);
      seen.delete(body.metadata.id);
      if (first !== body.user || `v${body.seed}` !== body.user) mixed.push(`${first} ${body.user} ${body.seed}`);
      sendJson(response, 200, answerOf(body.user));
    };
    let done = false;
    const failed: string[] = [];
    const versions = new Set<string>();
    const client = async (name: number) => {
      for (let i = 0; !done; i++) {
        const told = await routing.ask(slug, { metadata: { id: `${name}-${i}` } });
        if (told.status !== 200) failed.push(`${told.status} ${told.text}`);
        else versions.add((JSON.parse(told.text) as { id: string }).id);
      }
    };
    const clients = [0, 1, 2, 3].map(client);
    const answers = new Map<number, number>();
    const invalid = [
      { strategy: { mode: 'nothing' }, targets: [target('a')] },
      { ...version(1), nope: true },
      fallback([target('a', { retry: { attempts: 9 } })]),
      fallback([target('a', { input_guardrails: ['pg-nobody'] })]),
    ];
    for (let n = 1; n <= SWAPS; n++) {
      const config = n % 5 === 0 ? invalid[(n / 5) % invalid.length] : version(n);
      const { status } = await routing.server.admin('PUT', `/configs/${slug}`, { config });
      answers.set(status, (answers.get(status) ?? 0) + 1);
    }
    done = true;
    await Promise.all(clients);
    expect(failed.slice(0, 5)).toEqual([]);
    expect(mixed.slice(0, 5)).toEqual([]);
    expect(Object.fromEntries(answers)).toEqual({ 200: SWAPS * 0.8, 400: SWAPS * 0.2 });
    // Versions were met while they were current: the swaps did take place under load.
    expect(versions.size).toBeGreaterThan(20);
    const last = await routing.ask(slug, { metadata: { id: 'last' } });
    expect(JSON.parse(last.text)).toMatchObject({ id: `answer-v${SWAPS - 1}` });
  }, 120_000);
});
