import { describe, expect, it } from 'vitest';
import { deepFrozen } from '../../test/support/frozen.ts';
import { parseExact } from '../kernel/json-exact.ts';
import { scanJson } from '../kernel/json-scan.ts';
import { Secret } from '../kernel/secret.ts';
import { bindingFor } from '../providers/binding.ts';
import { PROVIDERS } from '../providers/catalog.ts';
import type { CallContext } from '../providers/provider.ts';
import { type BodyOrder, editedBody, editedValue, partsOf } from './request-body.ts';
import { compileShaping } from './shaping.ts';
import { RequestBody } from './state/body.ts';
import { WANTED } from './steps/read-body.ts';

const BODIES = [
  '{"model":"m","messages":[]}',
  '{"messages":[],"n":12345678901234567890,"x":1.50}',
  '{"model":"@slug/m","stream":true,"stream_options":{"include_obfuscation":false},"messages":[]}',
  '{"model":"m","stream":true,"stream_options":null,"messages":[{"role":"user","content":"\\u0061"}]}',
  '{"model":"m","stream":true,"stream_options":{"include_usage":true}}',
  '{"model":null,"stream":true,"__proto__":{"a":1}}',
  '{}',
];
const SHAPINGS = [
  {},
  { override_params: { temperature: 1, x: { y: 2 } } },
  { default_params: { n: 1, top_p: 0.5 }, override_params: { model: 'other' }, drop_params: ['seed'] },
];

/** The caller's body as it is sent to OpenAI, and what is said of it without parsing it. */
function sent(text: string, params: (typeof SHAPINGS)[number]) {
  const bytes = Buffer.from(text);
  const scan = scanJson(bytes, WANTED);
  const body = new RequestBody(bytes, scan);
  const shaping = compileShaping(params);
  deepFrozen(body.value());
  deepFrozen(body.under(shaping));
  const asked = text.includes('"m"') ? 'm' : '';
  const model =
    'override_params' in params && params.override_params?.model ? 'other' : asked || (text.includes('@') ? 'm' : '');
  const stream = scan.get('stream')?.kind === 'true';
  const provider = PROVIDERS.get('openai');
  const bound = provider === undefined ? null : bindingFor(provider, 'chat', model);
  if (bound === null) throw new Error('OpenAI has chat.');
  const context: CallContext = {
    operation: 'chat',
    model,
    stream,
    credentials: { key: new Secret('k'), settings: {} },
    pathParams: {},
    header: () => undefined,
    strict: true,
    now: () => 0,
  };
  const order: BodyOrder = {
    operation: 'chat',
    body,
    scan,
    asked: text.includes('@') ? 'm' : asked,
    deployment: false,
    stream,
    shaped: false,
    shaping,
    media: null,
    shown: null,
    prefill: null,
    explained: false,
    came: null,
  };
  const made = editedBody(order, bound, context);
  if (made === null) return null;
  return {
    bytes: Buffer.concat(partsOf(made, bytes)).toString('utf8'),
    value: editedValue(order, model, made.stripUsage),
  };
}

describe('what an edited body says is known without parsing it', () => {
  it.each(BODIES.flatMap((text) => SHAPINGS.map((params) => [text, params] as const)))(
    '%s under %j',
    (text, params) => {
      const made = sent(text, params);
      // An empty object, and a model that is no text, are written anew under a config.
      if ((text === '{}' || text.includes('null,"stream"')) && made === null) return;
      expect(made).not.toBeNull();
      expect(made?.value).toEqual(parseExact(made?.bytes ?? ''));
      expect(Object.keys(made?.value ?? {}).sort()).toEqual(
        Object.keys(JSON.parse(made?.bytes ?? '{}') as object).sort(),
      );
    },
  );
});

it('a name that a body has twice is refused before anything is made of it, or has one value for all readers', () => {
  const twice = Buffer.from('{"temperature":1,"temperature":2}');
  expect(() => scanJson(twice, ['temperature'])).toThrow('temperature');
});
