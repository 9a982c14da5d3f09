/** Published prices of models, for anybody: `GET /model-configs/pricing/{provider}/{model}`. */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Clock } from '../kernel/clock.ts';
import type { Price, Pricer } from '../pricing/price.ts';
import { providerById } from '../providers/catalog.ts';

interface InCents {
  readonly price: number;
}

/** Our classes of tokens and the contract's names. */
const NAMES = {
  input: 'request_token',
  output: 'response_token',
  cache_write: 'cache_write_input_token',
  cache_read: 'cache_read_input_token',
  audio_input: 'request_audio_token',
  audio_output: 'response_audio_token',
} as const;
const MAX_NAME = 200;

/** US cents for one unit, of dollars for a million. */
function cents(dollarsPerMillion: number): InCents {
  return { price: Number((dollarsPerMillion / 10_000).toPrecision(12)) };
}

function cardOf(rates: Readonly<Record<string, number>>): Record<string, unknown> {
  const card: Record<string, unknown> = {};
  for (const [ours, theirs] of Object.entries(NAMES)) {
    const rate = rates[ours];
    if (rate !== undefined) card[theirs] = cents(rate);
  }
  const { reasoning } = rates;
  if (reasoning !== undefined) card.additional_units = { thinking_token: cents(reasoning) };
  return card;
}

const value = (name: string) => ({ value: name });
const times = (count: string, rate: string) => ({
  operation: 'multiply',
  operands: [value(count), value(`rates.${rate}`)],
});

/** How the cost of a request follows from its counts. */
function calculation(card: Readonly<Record<string, unknown>>) {
  const counts = {
    request: {
      request_token: 'input_tokens',
      cache_write_input_token: 'cache_write_tokens',
      cache_read_input_token: 'cache_read_tokens',
      request_audio_token: 'input_audio_tokens',
    },
    response: { response_token: 'output_tokens', response_audio_token: 'output_audio_tokens' },
  };
  const sum = (of: Readonly<Record<string, string>>) => ({
    operation: 'sum',
    operands: Object.entries(of)
      .filter(([name]) => name in card)
      .map(([name, count]) => times(count, name)),
  });
  return { request: sum(counts.request), response: sum(counts.response) };
}

/** The answer for one price. Longer contexts that cost more are in `long_context`, each from so many input tokens on. */
function priceAnswer(price: Price): Record<string, unknown> {
  const [first, ...longer] = price.tiers;
  const card = cardOf(first.rates);
  return {
    pay_as_you_go: card,
    calculate: calculation(card),
    currency: 'USD',
    ...(longer.length === 0
      ? null
      : { long_context: longer.map(({ above, rates }) => ({ above_input_tokens: above, ...cardOf(rates) })) }),
  };
}

export function registerModelPrices(app: FastifyInstance, { pricer, clock }: { pricer: Pricer; clock: Clock }): void {
  // Under the base URL of clients too: there it would be taken for a path of a provider.
  for (const base of ['', '/v1']) {
    const url = `${base}/model-configs/pricing/:provider/*`;
    app.get<{ Params: { provider: string; '*': string } }>(url, (request, reply) => {
      const { provider: name, '*': model } = request.params;
      const provider = name.length > MAX_NAME ? undefined : providerById(name);
      if (provider === undefined || model === '' || model.length > MAX_NAME) return notFound(reply);
      const price = pricer.price(provider.id, null, model, null, clock.now());
      return price === null ? notFound(reply) : reply.send(priceAnswer(price));
    });
  }
}

function notFound(reply: FastifyReply): FastifyReply {
  return reply.code(404).send({ error: 'Model not found' });
}
