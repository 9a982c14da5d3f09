/** Published prices, as anybody can read them. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../../test/support/server.ts';

let server: TestServer;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server?.stop());

const prices = async (path: string) => {
  const answer = await fetch(`${server.url}/model-configs/pricing/${path}`);
  return { status: answer.status, body: (await answer.json()) as Record<string, never> };
};

describe('GET /model-configs/pricing/{provider}/{model}', () => {
  it('tells the price of a token in US cents, to anybody', async () => {
    const { status, body } = await prices('openai/gpt-4o');
    expect(status).toBe(200);
    expect(body).toMatchObject({
      pay_as_you_go: {
        request_token: { price: 0.00025 },
        response_token: { price: 0.001 },
        cache_read_input_token: { price: 0.000125 },
      },
      currency: 'USD',
    });
    expect(body.calculate).toMatchObject({
      request: {
        operation: 'sum',
        operands: expect.arrayContaining([
          { operation: 'multiply', operands: [{ value: 'input_tokens' }, { value: 'rates.request_token' }] },
        ]),
      },
    });
  });

  it('answers the same below the base URL of clients', async () => {
    const below = await fetch(`${server.url}/v1/model-configs/pricing/openai/gpt-4o`);
    expect([below.status, await below.json()]).toEqual([200, (await prices('openai/gpt-4o')).body]);
    const unknown = await fetch(`${server.url}/v1/model-configs/pricing/openai/no-such-model`);
    expect([unknown.status, await unknown.json()]).toEqual([404, { error: 'Model not found' }]);
  });

  it('knows providers by their other names, and models with a slash', async () => {
    expect((await prices('mistral/mistral-large-latest')).body).toEqual(
      (await prices('mistral-ai/mistral-large-latest')).body,
    );
    const slashed = 'openrouter/openai/gpt-4o';
    expect((await prices(slashed)).status).toBe(200);
    expect((await prices(slashed.replace('i/g', 'i%2Fg'))).body).toEqual((await prices(slashed)).body);
  });

  it('tells what longer contexts cost, where they cost more', async () => {
    const { body } = await prices('anthropic/claude-sonnet-4-5');
    expect(body.long_context).toEqual([
      expect.objectContaining({ above_input_tokens: 200_000, request_token: { price: 0.0006 } }),
    ]);
  });

  it.each(['openai/no-such-model', 'nobody/gpt-4o', 'openai/', `openai/${'x'.repeat(201)}`, 'constructor/x'])(
    'answers 404 for %s',
    async (path) => {
      const { status, body } = await prices(path);
      expect([status, body]).toEqual([404, { error: 'Model not found' }]);
    },
  );
});
