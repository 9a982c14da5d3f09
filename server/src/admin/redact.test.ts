import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../kernel/json.ts';
import type { Macs } from '../store/vault.ts';
import { markOf, maskedBody, maskedChange, maskedHeaders, maskedPath } from './redact.ts';

const macs: Macs = {
  mac: (use: string, data: Buffer, keyId: string = 'test') => ({
    keyId,
    digest: createHmac('sha256', keyId).update(use).update(data).digest(),
  }),
};
const mark = markOf(macs, 'organisation');
const masked = (body: JsonObject) => JSON.parse(maskedBody(body, mark) ?? 'null');
const MARK = expect.stringMatching(/^\*{7}[0-9a-f]{8}$/);

const SECRET_NAMES = [
  'key',
  'api_key',
  'apiKey',
  'apikey',
  'client_secret',
  'clientSecret',
  'clientsecret',
  'awsSecretAccessKey',
  'aws_access_key_id',
  'password',
  'newPassword',
  'accessToken',
  'refresh_token',
  'privateKey',
  'secret_key',
  'Authorization',
  'token_digest',
  'password2',
  'passWord',
  'PASS-WORD',
  'SECRETKEY',
  'client.secrets.old',
  'masterkey',
  'API_KEY_2',
  'tokens',
  'accesstokens',
];

/** A canary that no pattern of known secrets matches. */
const CANARY = 'plum canary 4711';

describe('bodies in the audit log', () => {
  it.each(SECRET_NAMES)('show no value under %s, at any depth, in JSON and in JSON within a text', (name) => {
    const deep = { [name]: CANARY, list: [{ [name]: [CANARY, { deep: CANARY }] }] };
    expect(masked(deep)).toEqual({ [name]: MARK, list: [{ [name]: [MARK, { deep: MARK }] }] });
    for (const body of [{ config: JSON.stringify(deep) }, { a: [JSON.stringify({ b: JSON.stringify(deep) })] }]) {
      expect(maskedBody(body, mark)).not.toContain('canary');
      expect(maskedBody(body, mark)).toContain('list');
    }
  });

  it('show nothing of custom headers and of SCIM passwords', () => {
    expect(masked({ custom_headers: { 'x-anything': CANARY } })).toEqual({ custom_headers: { 'x-anything': MARK } });
    const scim = { userName: 'ada', Operations: [{ op: 'replace', value: { password: CANARY } }] };
    expect(masked(scim)).toEqual({ userName: 'ada', Operations: [{ op: 'replace', value: { password: MARK } }] });
  });

  it.each([
    'see slc_wks_abc',
    'Bearer abcdefgh12345678',
    'sk-proj-abcdefghijklmnop',
    'AKIAIOSFODNN7EXAMPLE',
    'eyJhbGciOiJI.eyJzdWIiOiIx.sig',
    '-----BEGIN PRIVATE KEY-----\nMII',
    'https://ada:hunter2@example.com/x',
    'slc1.kek.dek.iv.text.tag',
    'password=hunter2000',
    'my api_key: "abcdef123456"',
  ])('mask %s wherever it stands', (value) => {
    expect(masked({ note: value, list: [value] })).toEqual({ note: MARK, list: [MARK] });
    expect(Object.keys(masked({ map: { [value]: 1 } }).map)).toEqual([MARK]);
  });

  it('show the rest: names, numbers, references and settings whose names only sound secret', () => {
    const body = {
      name: 'Ada',
      max_tokens: 5,
      key_transition_period_ms: 1_800_000,
      user_api_key_config: 'pc-default',
      virtual_key: 'openai-main',
      secret_mappings: [{ target_field: 'key', secret_reference_id: '0196-x' }],
      pricing: { request_token: { price: 0.002 } },
      list: [1, null, true],
    };
    expect(masked(body)).toEqual(body);
    expect(maskedBody(null, mark)).toBeNull();
  });

  it('tell that a secret was changed, and not what it is', () => {
    const one = masked({ key: 'a', other_key: 'a', third_key: 'b' });
    expect(one.key).toBe(one.other_key);
    expect(one.key).not.toBe(one.third_key);
    expect(JSON.parse(maskedBody({ key: 'a' }, markOf(macs, 'another organisation')) ?? '').key).not.toBe(one.key);
  });

  it('never hold a secret or a part of it, whatever surrounds it', () => {
    const secret = fc.stringMatching(/^[A-Z]{12}$/);
    const around = fc.letrec((tie) => ({
      node: fc.oneof(
        { maxDepth: 4 },
        fc.constantFrom('<secret>'),
        fc.array(tie('node'), { maxLength: 3 }),
        fc.dictionary(fc.constantFrom('a', 'value', 'list'), tie('node'), { maxKeys: 3 }),
        tie('node').map((node) => JSON.stringify({ inner: node })),
      ),
    })).node;
    fc.assert(
      fc.property(secret, fc.constantFrom(...SECRET_NAMES), around, (text, name, node) => {
        const put = JSON.parse(JSON.stringify({ [name]: node }).replaceAll('<secret>', text)) as JsonObject;
        const shown = maskedBody(put, mark) ?? '';
        for (let i = 0; i + 4 <= text.length; i++) expect(shown).not.toContain(text.slice(i, i + 4));
      }),
    );
  });

  it('take a time that grows with the body and not faster, whatever stands in it', () => {
    const most = 200_000;
    for (const piece of [
      '://:',
      ':',
      'eyJaaaaaaaa-',
      '1',
      'a1',
      '\\',
      '%5F',
      ' ',
      'bearer ',
      'secret:',
      '-----BEGIN A',
      'token',
    ]) {
      const long = piece.repeat(most / piece.length);
      for (const text of [long, `://${long}`, `password ${long}`, `"${long}`]) {
        const started = performance.now();
        maskedBody({ name: text, [`${text}x`]: 1 }, mark);
        // A quadratic pattern takes minutes here.
        expect([piece, performance.now() - started < 2_000]).toEqual([piece, true]);
      }
    }
  });

  it('mark no more secrets than can be recorded', () => {
    let marks = 0;
    const counting = (secret: string) => {
      marks += 1;
      return mark(secret);
    };
    const keys = Array<string>(200_000).fill('a');
    for (const body of [
      { keys },
      { name: JSON.stringify({ keys }) },
      Object.fromEntries(keys.map((_, i) => [`key${i}`, 'a'])),
    ]) {
      marks = 0;
      expect(JSON.parse(maskedBody(body, counting) ?? '')).toEqual({
        omitted: expect.stringMatching(/^\d+ characters$/),
      });
      expect(marks).toBeLessThanOrEqual(1_000);
    }
    expect(masked({ keys: keys.slice(0, 1_000) }).keys).toHaveLength(1_000);
    expect(masked({ keys: keys.slice(0, 1_001) })).toEqual({ omitted: expect.any(String) });
  });

  it('show no secret of a text that is escaped once more', () => {
    const inner = JSON.stringify({ api_key: 'plumcanary4711', note: 'seen' });
    for (const text of [JSON.stringify(inner), JSON.stringify(JSON.stringify(inner)), `x ${JSON.stringify(inner)}`]) {
      expect(maskedBody({ config: text }, mark)).not.toContain('plum');
    }
    expect(masked({ note: 'client_secret%3Dplumcanary4711' })).toEqual({ note: MARK });
    expect(masked({ note: '"quoted" words' })).toEqual({ note: '"quoted" words' });
  });

  it('are bounded: a huge body is recorded by its size, a very deep one only so far', () => {
    expect(masked({ text: 'x'.repeat(100_000) })).toEqual({ omitted: '100011 characters' });
    const deep = `${'['.repeat(50_000)}${']'.repeat(50_000)}`;
    expect((maskedBody({ deep }, mark) ?? '').length).toBeLessThan(500);
  });
});

describe('objects before and after', () => {
  it('hide sealed columns by the schema and write times out', () => {
    const row = { id: 'x', name: 'OpenAI', key: 'plain text', configurations: { region: 'eu' }, created_at: 0 };
    const { before, after } = maskedChange({ before: row, after: null, table: 'integrations' }, mark);
    expect(JSON.parse(before ?? '')).toEqual({ ...row, key: MARK, created_at: '1970-01-01T00:00:00.000Z' });
    expect(after).toBeNull();
  });

  it('leave large columns out of an object that is too long, and say so', () => {
    const row = { id: 'x', config: { text: 'y'.repeat(70_000) }, name: 'small' };
    const { after } = maskedChange({ before: null, after: row }, mark);
    expect(JSON.parse(after ?? '')).toEqual({
      id: 'x',
      config: { omitted: expect.stringMatching(/^70011 characters \*{7}[0-9a-f]{8}$/) },
      name: 'small',
    });
  });
});

describe('headers and paths', () => {
  it('show what says who called with what, and of every other header only that it was there', () => {
    const raw = ['User-Agent', 'curl/8', 'X-Gateway-Api-Key', 'abc', 'Cookie', 'a=b', 'X-Own', 'v', 'Host', 'h'];
    expect(JSON.parse(maskedHeaders(raw, mark))).toEqual({
      'user-agent': 'curl/8',
      'x-gateway-api-key': MARK,
      cookie: MARK,
      'x-own': MARK,
      host: 'h',
    });
    expect(JSON.parse(maskedHeaders(['Origin', 'https://a:b@c'], mark))).toEqual({ origin: MARK });
    const many = Array.from({ length: 1_000 }, (_, i) => [`h${i}`, 'x'.repeat(1_000)]).flat();
    expect(maskedHeaders(many, mark).length).toBeLessThan(4_096);
  });

  it('mask a key in a path', () => {
    expect(maskedPath('/v1/api-keys/slc_wks_abc', mark)).toMatch(/^\/v1\/api-keys\/\*{7}[0-9a-f]{8}$/);
    expect(maskedPath('/v1/api-keys/x', mark)).toBe('/v1/api-keys/x');
    expect(maskedPath('/slc_'.repeat(400), mark)).toHaveLength(1_024);
    for (const other of ['slc%5Fwks_abc', '%73lc_wks_abc', 'Bearer%20abcdefgh1234', 'slc%5Fwks%zz']) {
      expect(maskedPath(`/v1/configs/${other}`, mark)).toMatch(/^\/v1\/configs\/\*{7}[0-9a-f]{8}$/);
    }
    expect(maskedPath('/v1/configs/a%zz', mark)).toBe('/v1/configs/a%zz');
  });
});
