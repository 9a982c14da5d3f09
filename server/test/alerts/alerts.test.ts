/** Alerts through a whole server: who is told is configured over the API, and what arrives is a mail and a signed call. */
import { Webhook } from 'standardwebhooks';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/clock.ts';
import { type Hook, hook } from '../support/hook.ts';
import { type MailSink, mailSink } from '../support/mail-sink.ts';
import { startServer, type TestServer } from '../support/server.ts';

let server: TestServer;
let sink: MailSink;
let receiver: Hook;

beforeAll(async () => {
  sink = await mailSink({ user: 'sluice', password: 'secret/1' });
  receiver = await hook();
  server = await startServer({
    SLUICE_SMTP_URL: `smtp://sluice:secret%2F1@127.0.0.1:${sink.port}`,
    SLUICE_MAIL_FROM: 'Sluice <alerts@sluice.example>',
    SLUICE_PUBLIC_URL: 'https://sluice.example',
    SLUICE_TRUSTED_HOSTS: '127.0.0.1',
  });
}, 60_000);

afterAll(async () => {
  await server.stop();
  await receiver.close();
  await sink.close();
});

async function eventually(good: () => boolean | Promise<boolean>): Promise<void> {
  for (let i = 0; i < 1500 && !(await good()); i++) {
    await new Promise((resolve) => systemClock.after(10, () => resolve(undefined)));
  }
  expect(await good()).toBe(true);
}

const good = {
  name: 'team budget',
  conditions: [{ key: 'api_key', value: '*' }],
  group_by: [{ key: 'api_key' }],
  type: 'requests',
  credit_limit: 1,
};
const policy = (more: object) =>
  server.admin('POST', '/policies/usage-limits', { ...good, workspace_id: server.first.workspace_id, ...more });

it('a used-up policy sends one signed call and one mail to everybody who is named', async () => {
  const { body: made } = await server.admin('POST', '/admin/organisation/webhook-secret');
  expect(made).toEqual({
    object: 'webhook-secret',
    secret: expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/),
    previous_valid_until: null,
  });
  const general = { emails: ['org@team.example'], webhook_url: `${receiver.url}/org` };
  expect((await server.admin('PUT', '/admin/organisation/settings', { alerts: general })).status).toBe(200);
  const { body: key } = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'caller',
    workspace_id: server.first.workspace_id,
    scopes: ['completions.write'],
  });
  const { body } = await policy({
    conditions: [{ key: 'api_key', value: key.id }],
    alert_emails: ['policy@team.example', 'ORG@team.example'],
    alert_webhook_url: `${receiver.url}/policy`,
  });
  const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'The secret of the prompt' }] };
  await eventually(async () => {
    const answer = await server.call('/chat/completions', chat, { 'x-gateway-api-key': String(key.key) });
    await answer.text();
    return answer.status === 412;
  });
  await eventually(() => receiver.calls.length === 2 && sink.mails.length === 2);

  expect(receiver.calls.map(({ path }) => path).sort()).toEqual(['/org', '/policy']);
  for (const call of receiver.calls) {
    // Checks time and signature, and parses.
    const event = new Webhook(String(made.secret)).verify(call.body, call.headers as Record<string, string>);
    expect(event).toMatchObject({
      type: 'usage_limit.exhausted',
      data: {
        organisation_id: server.first.organisation_id,
        owner: { kind: 'policy', id: body.id, name: 'team budget' },
        value_key: `api_key:${key.id}`,
        limit: { type: 'requests', current_usage: 1, credit_limit: 1, resets_at: null },
        console_url: 'https://sluice.example/console/',
      },
    });
  }
  expect(sink.mails.flatMap(({ to }) => to).sort()).toEqual(['ORG@team.example', 'policy@team.example']);
  const all = JSON.stringify([receiver.calls, sink.mails]);
  for (const secret of [key.key, made.secret, 'The secret of the prompt', 'secret/1']) {
    expect(all).not.toContain(String(secret));
  }

  let list: Record<string, unknown> = {};
  await eventually(async () => {
    list = (await server.admin('GET', `/policies/usage-limits/${body.id}/alerts`)).body;
    return (list.data as { status: string }[]).every(({ status }) => status === 'delivered');
  });
  expect(list).toMatchObject({ object: 'list', total: 4 });
  const host = new URL(receiver.url).host;
  const shown = (list.data as Record<string, unknown>[]).map(({ channel, recipient }) => `${channel} ${recipient}`);
  const expected = [`webhook ${host}`, `webhook ${host}`, 'email ORG@team.example', 'email policy@team.example'];
  expect(shown.sort()).toEqual(expected.sort());
  expect(JSON.stringify(list)).not.toContain('/org');
  expect((await server.admin('DELETE', `/policies/usage-limits/${body.id}`)).status).toBe(200);
}, 60_000);

it('an alert without recipients is in the list of its policy, with the value that it is about', async () => {
  expect((await server.admin('PUT', '/admin/organisation/settings', { alerts: null })).status).toBe(200);
  const { body: key } = await server.admin('POST', '/api-keys/workspace/service', {
    name: 'quiet',
    workspace_id: server.first.workspace_id,
    scopes: ['completions.write'],
  });
  const { body } = await policy({ name: 'quiet', conditions: [{ key: 'api_key', value: key.id }] });
  const sent = [receiver.calls.length, sink.mails.length];
  const chat = { model: '@sandbox/echo', messages: [{ role: 'user', content: 'x' }] };
  await eventually(async () => {
    const answer = await server.call('/chat/completions', chat, { 'x-gateway-api-key': String(key.key) });
    await answer.text();
    return answer.status === 412;
  });
  const list = async () => (await server.admin('GET', `/policies/usage-limits/${body.id}/alerts`)).body;
  await eventually(async () => (await list()).total === 1);
  expect(await list()).toMatchObject({
    data: [
      {
        alert: 'exhausted',
        value_key: `api_key:${key.id}`,
        channel: null,
        recipient: null,
        status: 'no_recipients',
        tries: 0,
        next_try_at: null,
      },
    ],
  });
  expect([receiver.calls.length, sink.mails.length]).toEqual(sent);
  expect((await server.admin('DELETE', `/policies/usage-limits/${body.id}`)).status).toBe(200);
}, 60_000);

it('a new secret comes with the time until which the one before signs too', async () => {
  const { body } = await server.admin('POST', '/admin/organisation/webhook-secret');
  const again = await server.admin('POST', '/admin/organisation/webhook-secret');
  expect(again.body.secret).not.toBe(body.secret);
  const left = Date.parse(String(again.body.previous_valid_until)) - systemClock.now();
  expect(left / 3_600_000).toBeCloseTo(24, 0);
  const settings = await server.admin('GET', '/admin/organisation/settings');
  expect(JSON.stringify(settings.body)).not.toMatch(/whsec|signing|generation/);
  expect(
    (await server.admin('POST', '/admin/organisation/webhook-secret', undefined, server.first.workspace_api_key))
      .status,
  ).toBe(403);
});

describe('who is told', () => {
  const bad = [
    [{ emails: ['no address'] }, 'emails[0]'],
    [{ emails: ['a@b.example\r\nBcc: c@d.example'] }, 'emails[0]'],
    [{ emails: ['a@b.example, c@d.example'] }, 'emails[0]'],
    [{ emails: Array.from({ length: 51 }, (_, i) => `a${i}@b.example`) }, 'emails'],
    [{ webhook_url: 'ftp://a.example/' }, 'webhook_url'],
    [{ webhook_url: 'https://user:pass@a.example/' }, 'webhook_url'],
    [{ webhook_url: 'http://169.254.169.254/' }, 'webhook_url'],
    [{ webhook_url: 'http://10.1.2.3/' }, 'webhook_url'],
    [{ webhook_url: '' }, 'webhook_url'],
    [{ webhook_url: 7 }, 'webhook_url'],
  ] as const;

  it.each([
    [{ spend_budget: 0 }, 'spend_budget'],
    [{ spend_budget: '500' }, 'spend_budget'],
    [{ error_budget: 0 }, 'error_budget'],
    [{ error_budget: 101 }, 'error_budget'],
    [{ spend_anomalies: 1 }, 'spend_anomalies'],
  ] as const)('%j is refused by organisation and workspace, with 400 and the field', async (alerts, field) => {
    const workspace = `/admin/workspaces/${server.first.workspace_id}`;
    for (const [answer, param] of [
      [await server.admin('PUT', '/admin/organisation/settings', { alerts }), `alerts.${field}`],
      [await server.admin('PUT', workspace, { settings: { alerts } }), `settings.alerts.${field}`],
    ] as const) {
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'AB01', param } } });
    }
  });

  it.each(bad)(
    '%j is refused by policies, organisation and workspace, with 400 and the field',
    async (fields, field) => {
      const own = Object.fromEntries(Object.entries(fields).map(([name, value]) => [`alert_${name}`, value]));
      const { body } = await policy({});
      const workspace = `/admin/workspaces/${server.first.workspace_id}`;
      for (const [answer, param] of [
        [await policy(own), `alert_${field}`],
        [await server.admin('PUT', `/policies/usage-limits/${body.id}`, own), `alert_${field}`],
        [await server.admin('PUT', '/admin/organisation/settings', { alerts: fields }), `alerts.${field}`],
        [await server.admin('PUT', workspace, { settings: { alerts: fields } }), `settings.alerts.${field}`],
      ] as const) {
        expect(answer).toMatchObject({ status: 400, body: { error: { code: 'AB01', param } } });
      }
      await server.admin('DELETE', `/policies/usage-limits/${body.id}`);
    },
  );

  it('a policy keeps what it is given, and null clears it', async () => {
    const given = { alert_emails: ['a@b.example'], alert_webhook_url: 'https://hooks.example/x' };
    const { body } = await policy(given);
    const path = `/policies/usage-limits/${body.id}`;
    const masked = {
      ...given,
      alert_webhook_url: expect.stringMatching(/^https:\/\/hooks\.example\/\*{7}[0-9a-f]{8}$/),
    };
    const { body: first } = await server.admin('GET', path);
    expect(first).toMatchObject(masked);
    const back = { name: 'other', alert_webhook_url: first.alert_webhook_url };
    expect((await server.admin('PUT', path, back)).body).toEqual({});
    expect((await server.admin('GET', path)).body.alert_webhook_url).toBe(first.alert_webhook_url);
    const foreign = { alert_webhook_url: 'https://hooks.example/*******00000000' };
    expect((await server.admin('PUT', path, foreign)).status).toBe(400);
    await server.admin('PUT', path, { alert_emails: null, alert_webhook_url: null });
    expect((await server.admin('GET', path)).body).toMatchObject({ alert_emails: [], alert_webhook_url: null });
    await server.admin('DELETE', path);
  });

  it('settings are merged field by field, and null goes back to nobody', async () => {
    const path = '/admin/organisation/settings';
    const shown = async () => (await server.admin('GET', path)).body.alerts;
    await server.admin('PUT', path, { alerts: { emails: ['a@b.example'], webhook_url: 'https://hooks.example/x' } });
    await server.admin('PUT', path, { alerts: { emails: ['c@d.example'] } });
    const unwatched = { spend_budget: null, error_budget: null, spend_anomalies: false };
    expect(await shown()).toEqual({
      emails: ['c@d.example'],
      webhook_url: expect.stringMatching(/^https:\/\/hooks\.example\/\*{7}[0-9a-f]{8}$/),
      ...unwatched,
    });
    // What is shown keeps what is stored; the mask of another address is none.
    const { webhook_url } = (await shown()) as { webhook_url: string };
    expect((await server.admin('PUT', path, { alerts: { webhook_url } })).status).toBe(200);
    expect(await shown()).toMatchObject({ webhook_url });
    for (const foreign of ['https://hooks.example/*******00000000', webhook_url.replace('hooks', 'other')]) {
      const { status, body } = await server.admin('PUT', path, { alerts: { webhook_url: foreign } });
      expect([status, JSON.stringify(body)]).toEqual([400, expect.stringContaining('webhook_url')]);
    }
    expect(await shown()).toMatchObject({ webhook_url });
    await server.admin('PUT', path, { alerts: { webhook_url: null } });
    expect(await shown()).toEqual({ emails: ['c@d.example'], webhook_url: null, ...unwatched });
    await server.admin('PUT', path, { alerts: null });
    expect(await shown()).toEqual({ emails: [], webhook_url: null, ...unwatched });
    const workspace = `/admin/workspaces/${server.first.workspace_id}`;
    await server.admin('PUT', workspace, { settings: { alerts: { emails: ['w@b.example'] } } });
    expect((await server.admin('GET', workspace)).body.settings).toEqual({ alerts: { emails: ['w@b.example'] } });
  });
});
