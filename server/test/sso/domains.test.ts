/** Whose a domain is, on an installation of two organisations: a TXT record or the operator says it. */
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';

const records = vi.hoisted(() => ({ asked: [] as string[], texts: new Map<string, string[]>() }));
vi.mock('../../src/http/txt-records.ts', () => ({
  txtRecords: async (_clock: unknown, name: string) => {
    records.asked.push(name);
    return records.texts.get(name) ?? [];
  },
}));

interface Domain {
  readonly domain: string;
  readonly allow_subdomains: boolean;
  readonly verified: boolean;
  readonly verification: { readonly name: string; readonly value: string };
}

let server: TestServer;
let other: { id: string; key: string };
beforeAll(async () => {
  server = await startServer();
  const owner = { email: 'eve@other.example', first_name: 'Eve', last_name: 'Other' };
  const made = await operate('POST', '', { name: 'Other', owner });
  other = { id: String(made.body.organisation_id), key: String(made.body.admin_api_key) };
});
afterAll(() => server?.stop());

const operate = (method: string, path: string, body: unknown) =>
  server.admin(method, `/operator/organisations${path}`, body, server.first.operator_api_key);
const save = (domains: readonly string[], key?: string) => {
  const allowed_domains = domains.map((domain) => ({ domain, allow_subdomains: false }));
  return server.admin('PUT', '/admin/organisation/settings', { auth_settings: { allowed_domains } }, key);
};
async function domains(key?: string): Promise<readonly Domain[]> {
  const { body } = await server.admin('GET', '/admin/organisation/settings', undefined, key);
  return (body.auth_settings as { allowed_domains: Domain[] }).allowed_domains;
}
const verified = async (key?: string) => (await domains(key)).filter((row) => row.verified).map(({ domain }) => domain);

it('a TXT record verifies a domain when the list is saved again; another text does not', async () => {
  expect((await save(['acme.example'])).status).toBe(200);
  const [shown] = await domains();
  expect(shown).toMatchObject({ domain: 'acme.example', verified: false });
  expect(shown?.verification.name).toBe('_sluice.acme.example');
  expect(shown?.verification.value).toMatch(/^sluice-verification=[0-9A-Za-z]{32}$/);
  records.texts.set('_sluice.acme.example', [`${shown?.verification.value}x`, 'v=spf1 -all']);
  await save(['acme.example']);
  expect(await verified()).toEqual([]);
  records.texts.set('_sluice.acme.example', ['v=spf1 -all', String(shown?.verification.value)]);
  await save(['acme.example']);
  expect(await verified()).toEqual(['acme.example']);
  // What is verified stays so, and is not asked for again.
  records.texts.clear();
  records.asked.length = 0;
  await save(['acme.example']);
  expect([await verified(), records.asked]).toEqual([['acme.example'], []]);
});

it('a domain that another organisation has verified is 409, for who has proof and for the operator', async () => {
  expect((await save(['acme.example'], other.key)).status).toBe(200);
  expect(await verified(other.key)).toEqual([]);
  const [{ verification } = { verification: { value: '' } }] = await domains(other.key);
  records.texts.set('_sluice.acme.example', [verification.value]);
  const taken = await save(['free.example', 'acme.example'], other.key);
  expect(taken).toMatchObject({ status: 409, body: { error: { param: 'auth_settings.allowed_domains[1].domain' } } });
  const told = await operate('PUT', `/${other.id}`, { verified_domains: ['other.example', 'ACME.example'] });
  expect(told).toMatchObject({ status: 409, body: { error: { param: 'verified_domains[1]' } } });
  expect([await verified(other.key), await verified()]).toEqual([[], ['acme.example']]);
});

it('a domain that another organisation only lists is free: it goes to who can show it', async () => {
  records.texts.clear();
  expect((await save(['acme.example', 'claimed.example', 'told.example'], other.key)).status).toBe(200);
  expect((await save(['acme.example', 'claimed.example', 'told.example'])).status).toBe(200);
  const shown = (await domains()).find(({ domain }) => domain === 'claimed.example');
  records.texts.set('_sluice.claimed.example', [String(shown?.verification.value)]);
  for (const key of [other.key, undefined]) await save(['acme.example', 'claimed.example', 'told.example'], key);
  const told = await operate('PUT', `/${server.first.organisation_id}`, { verified_domains: ['told.example'] });
  expect(told.status).toBe(200);
  expect([await verified(other.key), (await verified()).sort()]).toEqual([
    [],
    ['acme.example', 'claimed.example', 'told.example'],
  ]);
  await save(['acme.example']);
  await save([], other.key);
});

it('the operator verifies domains, listed or not, and the audit log of the organisation says so', async () => {
  expect((await save(['listed.example', 'open.example'], other.key)).status).toBe(200);
  const change = { verified_domains: ['listed.example', 'other.example'] };
  expect(await operate('PUT', `/${other.id}`, change)).toMatchObject({ status: 200, body: {} });
  expect((await verified(other.key)).sort()).toEqual(['listed.example', 'other.example']);
  expect(await domains(other.key)).toHaveLength(3);
  expect(await verified()).toEqual(['acme.example']);
  const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
  const { body } = await server.admin('GET', `/audit-logs?${range}`, undefined, other.key);
  const [row] = body.records as Record<string, unknown>[];
  expect(row).toMatchObject({ actor: 'operator', after: expect.stringContaining('other.example') });
});

it.each([
  [['co.uk'], 'verified_domains[0]'],
  [['not a domain'], 'verified_domains[0]'],
  [['a.example', 'A.example'], 'verified_domains'],
  [[], 'verified_domains'],
])('the operator cannot verify %j', async (verified_domains, param) => {
  const answer = await operate('PUT', `/${other.id}`, { verified_domains });
  expect(answer).toMatchObject({ status: 400, body: { error: { param } } });
});
