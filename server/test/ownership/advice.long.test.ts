/**
 * What a 403 of a shared account advises helps the request that was refused: the same request is sent again after each
 * piece of advice was followed, and reaches the provider.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { CALLS } from '../limits/calls.ts';
import { clientCalls, startWorld, type World } from './account.ts';

interface Sent {
  readonly method: string;
  readonly path: string;
  readonly body?: Readonly<Record<string, unknown>>;
  readonly headers?: Readonly<Record<string, string>>;
}

let world: World;
const refused: { readonly sent: Sent; readonly message: string }[] = [];

/** What a body names whose owner nobody knows, and a header that does. */
const FIELD = { cachedContent: 'cachedContents/1' };
const HEADER = 'x-amzn-bedrock-guardrailidentifier';

const formOf = (fields: Readonly<Record<string, unknown>>) => {
  const form = new FormData();
  for (const [name, value] of Object.entries(fields))
    form.set(name, value instanceof Blob ? new File([value], 'a.bin') : String(value));
  return form;
};

const call = (key: string, slug: string, { method, path, body, headers }: Sent, more: Record<string, string> = {}) => {
  const holdsFile = Object.values(body ?? {}).some((value) => value instanceof Blob);
  return world.call(key, slug, method, path, body && holdsFile ? formOf(body) : body, { ...headers, ...more });
};

/** Every operation with a body, as it is and below /proxy, with what it may not name; every path of the official client. */
function everything(): Sent[] {
  const out: Sent[] = [];
  for (const [id, { fields, path }] of Object.entries(CALLS) as [OperationId, (typeof CALLS)[OperationId]][]) {
    const operation = OPERATIONS[id];
    if (fields === undefined || operation.method === 'ANY') continue;
    const sent = { method: operation.method, path: path ?? operation.path.replace(/^\/v1/, '') };
    for (const at of [sent.path, `/proxy${sent.path}`]) {
      out.push({ ...sent, path: at, body: { ...fields, ...FIELD } });
      out.push({
        ...sent,
        path: at,
        body: fields,
        headers: { [HEADER]: 'one', 'x-gateway-forward-headers': `${HEADER},x-test-call` },
      });
    }
  }
  for (const client of clientCalls()) {
    const [method = '', template = ''] = client.split(' ');
    const body = method === 'GET' || method === 'DELETE' ? {} : { body: { model: 'gpt-4o', input: 'x' } };
    out.push({ method, path: `/proxy${template.replaceAll('{}', 'old-1')}`, ...body });
  }
  return out;
}

beforeAll(async () => {
  world = await startWorld();
  for (const sent of everything()) {
    const answer = await call(world.keys.a, world.shared.a, sent);
    if (answer.status === 403) refused.push({ sent, message: JSON.parse(answer.text).error.message });
  }
}, 120_000);

afterAll(() => world?.stop());

/** Each piece of advice, the text that gives it, and how it is followed. */
const ADVICE: readonly {
  readonly says: RegExp;
  readonly follow: (sent: Sent, message: string) => Promise<{ status: number; text: string; sent: number }>;
}[] = [
  {
    says: /an integration that only this workspace uses/,
    follow: (sent) => call(world.keys.a, world.alone, sent),
  },
  {
    says: /this workspace in passthrough of the integration/,
    follow: async (sent) => {
      await world.server.admin('PUT', '/integrations/shared', { passthrough: { workspaces: [world.workspaces.a] } });
      const answer = await call(world.keys.a, world.shared.a, sent);
      await world.server.admin('PUT', '/integrations/shared', { passthrough: null });
      return answer;
    },
  },
  {
    says: /send your own provider token/,
    follow: (sent) =>
      call(world.keys.a, '=openai', sent, {
        authorization: 'Bearer sk-own',
        'x-gateway-custom-host': `${world.upstream.url}/v1`,
      }),
  },
  {
    says: /Leave \S+ out/,
    follow: ({ headers, body, ...sent }) =>
      call(world.keys.a, world.shared.a, {
        ...sent,
        body: Object.fromEntries(Object.entries(body ?? {}).filter(([name]) => !(name in FIELD))),
      }),
  },
];

describe('the advice of a 403 at a shared account', () => {
  it('is tried for named operations, for what is passed through, and for paths that are closed', () => {
    const count = (what: (one: (typeof refused)[number]) => boolean) => refused.filter(what).length;
    expect(count(({ sent }) => !sent.path.startsWith('/proxy'))).toBeGreaterThan(8);
    expect(count(({ sent }) => sent.body !== undefined && 'cachedContent' in sent.body)).toBeGreaterThan(8);
    expect(count(({ sent }) => sent.headers !== undefined)).toBeGreaterThan(8);
    expect(count(({ message }) => message.includes('passthrough'))).toBeGreaterThan(40);
  });

  it('names at least two ways out, and each of them lets the request through', async () => {
    const useless: string[] = [];
    for (const { sent, message } of refused) {
      const title = `${sent.method} ${sent.path} ${sent.headers === undefined ? '' : HEADER}`;
      const given = ADVICE.filter(({ says }) => says.test(message));
      if (given.length < 2) useless.push(`${title}: ${message}`);
      for (const { says, follow } of given) {
        const answer = await follow(sent, message);
        // What the provider of the test answers to another wire shape may be no answer of it: 502.
        if (![200, 502].includes(answer.status) || answer.sent === 0)
          useless.push(
            `${title}: ${says.source} → ${answer.status}, sent ${answer.sent}: ${answer.text.slice(0, 200)}`,
          );
      }
    }
    expect(useless).toEqual([]);
  }, 120_000);

  it('is not to open pass-through where the operation is named', () => {
    const wrong = refused.filter(
      ({ sent, message }) => sent.path.startsWith('/proxy') !== message.includes('passthrough'),
    );
    expect(wrong.map(({ sent }) => `${sent.method} ${sent.path}`)).toEqual([]);
  });
});
