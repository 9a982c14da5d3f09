/** How alerts get to webhooks and mailboxes: signed, tried again, one recipient never holding up another. */
import { randomBytes } from 'node:crypto';
import { Webhook } from 'standardwebhooks';
import { afterEach, describe, expect, it } from 'vitest';
import { systemTenant } from '../../src/auth/tenant.ts';
import { createFetcher } from '../../src/http/background-fetcher.ts';
import { createEgressGuard, parseTrustedHosts } from '../../src/http/egress-guard.ts';
import { webhookPoster } from '../../src/http/post-webhook.ts';
import { type DeliverOptions, MAX_TRIES, removeOld, startAlertDeliveries } from '../../src/jobs/alerts/deliver.ts';
import type { AlertEvent } from '../../src/jobs/alerts/event.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { silentLog } from '../../src/kernel/log.ts';
import { Secret } from '../../src/kernel/secret.ts';
import type { Mailer } from '../../src/mail/mailer.ts';
import { type SmtpOptions, smtpMailer } from '../../src/mail/smtp.ts';
import { nextSigningSecret } from '../../src/resources/settings/webhook-secret.ts';
import { organisationRow, tenantRows, workspaceRow } from '../../src/store/conformance/rows.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import type { Tables } from '../../src/store/ports.ts';
import type { Row } from '../../src/store/schema.ts';
import { alertTurn } from '../support/alert-turn.ts';
import { hook } from '../support/hook.ts';
import { booksStore, ORGANISATION, WORKSPACE } from '../support/ledger-node.ts';
import { mailSink } from '../support/mail-sink.ts';

const macs = await loadKeyring({ masterKey: randomBytes(32).toString('base64'), masterKeyFile: '', create: true });

let open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.reverse()) await one.close();
  open = [];
});
const own = <T extends { close(): Promise<void> }>(one: T): T => {
  open.push(one);
  return one;
};

const START = Date.UTC(2027, 2, 10, 12);
const EVENT: AlertEvent = {
  type: 'usage_limit.threshold',
  timestamp: '2027-03-10T12:00:00.000Z',
  data: {
    organisation_id: ORGANISATION,
    workspace_id: WORKSPACE,
    workspace_slug: 'research',
    owner: { kind: 'policy', id: 'policy-1', name: 'team budget' },
    value_key: 'metadata._user:alice',
    limit: {
      type: 'cost',
      current_usage: 8.25,
      credit_limit: 10,
      alert_threshold: 8,
      unpriced_requests: 0,
      window: 3,
      resets_at: '2027-04-01T00:00:00.000Z',
    },
    console_url: 'https://sluice.example/console/',
  },
};

interface World {
  readonly tables: Tables;
  readonly clock: TestClock;
  add(channel: 'webhook' | 'email', recipient: string, more?: Partial<Row<'alert_deliveries'>>): Promise<string>;
  addMany(channel: 'webhook' | 'email', recipients: readonly string[]): Promise<string[]>;
  /** A node that leads until nothing is due. */
  turn(): Promise<void>;
  row(id: string): Promise<Row<'alert_deliveries'> | undefined>;
}

/** Of one length, so that they sort as they were made. */
let ids = 10_000;

async function world(
  options: Partial<DeliverOptions> & { engine?: 'sqlite' | 'postgres'; limitMs?: number } = {},
): Promise<World> {
  const clock = new TestClock(START);
  const tables = own(await booksStore(options.engine ?? 'sqlite', clock));
  await tables.systemWrite(async (tx) => {
    await tx.insert('usage_buckets', { ...tenantRows(ORGANISATION, WORKSPACE).usage_buckets, id: 'bucket' });
  });
  const deliver = { ...parts(tables, clock, options.limitMs), ...options };
  const add = async (
    channel: 'webhook' | 'email',
    recipients: readonly string[],
    more: Partial<Row<'alert_deliveries'>> = {},
  ) => {
    const { alert_deliveries } = tenantRows(ORGANISATION, WORKSPACE);
    const now = clock.now();
    const given = { bucket_id: 'bucket', channel, body: { ...EVENT }, next_at: now, created_at: now, ...more };
    const rows = recipients.map((recipient) => ({ ...alert_deliveries, ...given, id: `delivery-${ids++}`, recipient }));
    await tables.systemWrite(async (tx) => {
      for (const row of rows) await tx.insert('alert_deliveries', row);
    });
    return rows.map(({ id }) => id);
  };
  return {
    tables,
    clock,
    add: async (channel, recipient, more) => (await add(channel, [recipient], more))[0] ?? '',
    addMany: (channel, recipients) => add(channel, recipients),
    async turn() {
      await alertTurn(deliver);
    },
    row: (id) => tables.systemRead((tx) => tx.find('alert_deliveries', { id })),
  };
}

function parts(tables: Tables, clock: TestClock, limitMs = 10_000): DeliverOptions {
  const egress = createEgressGuard({
    trustedHosts: parseTrustedHosts('127.0.0.1'),
    ownListeners: () => [],
    clock: systemClock,
    log: silentLog,
  });
  const fetcher = own(createFetcher({ egress, clock: systemClock }));
  const post = webhookPoster({ fetcher, clock: systemClock, limitMs });
  return { tables, clock, log: silentLog, macs, open: async (_, url) => url, mailer: null, post, random: () => 1 };
}

const newSecret = ({ tables, clock }: World) =>
  tables.write(systemTenant(ORGANISATION), (tx) => nextSigningSecret(tx, macs, clock.now()));

const smtp = (port: number, login: SmtpOptions['login'] = null): Mailer =>
  own(
    smtpMailer({
      host: '127.0.0.1',
      port,
      secure: false,
      login,
      from: { name: 'Sluice', address: 'alerts@sluice.example' },
    }),
  );

/** A webhook library compares with the clock of this machine. */
function verifies(secret: string, call: { headers: NodeJS.Dict<string | string[]>; body: string }): boolean {
  const library = new Webhook(secret);
  const id = String(call.headers['webhook-id']);
  const at = new Date(Number(call.headers['webhook-timestamp']) * 1000);
  const given = String(call.headers['webhook-signature']).split(' ');
  return given.includes(library.sign(id, at, call.body));
}

describe('webhooks', () => {
  it('an alert arrives once, as JSON that says which limit, with the headers of Standard Webhooks', async () => {
    const receiver = own(await hook());
    const all = await world();
    const { secret } = await newSecret(all);
    const id = await all.add('webhook', `${receiver.url}/in?team=a`);
    await all.turn();
    await all.turn();
    expect(receiver.calls).toHaveLength(1);
    const [call] = receiver.calls;
    if (call === undefined) throw new Error('no call');
    expect(call.path).toBe('/in?team=a');
    expect(JSON.parse(call.body)).toEqual(EVENT);
    expect(call.headers).toMatchObject({
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(START / 1000),
    });
    expect(verifies(secret, call)).toBe(true);
    expect(verifies(`whsec_${randomBytes(32).toString('base64')}`, call)).toBe(false);
    expect(await all.row(id)).toMatchObject({ tries: 1, next_at: null, delivered_at: START, last_error: null });
  });

  it('after a new secret both sign for a day, and then the new one alone', async () => {
    const receiver = own(await hook());
    const all = await world();
    const first = await newSecret(all);
    const second = await newSecret(all);
    expect(second).toMatchObject({ previousUntil: START + 86_400_000 });
    await all.add('webhook', receiver.url);
    await all.turn();
    all.clock.jump(86_400_000);
    await all.add('webhook', receiver.url);
    await all.turn();
    const seen = receiver.calls.map((call) => [verifies(first.secret, call), verifies(second.secret, call)]);
    expect(seen).toEqual([
      [true, true],
      [false, true],
    ]);
  });

  it('without a secret there is no signature', async () => {
    const receiver = own(await hook());
    const all = await world();
    await all.add('webhook', receiver.url);
    await all.turn();
    expect(receiver.calls[0]?.headers).not.toHaveProperty('webhook-signature');
  });

  it('one that fails is tried eight times under the same id, from ten seconds to an hour apart, and is given up', async () => {
    const receiver = own(await hook());
    receiver.answer = (_call, response) => response.writeHead(500).end('secret trace of the receiver');
    const all = await world();
    const id = await all.add('webhook', receiver.url);
    const waits: number[] = [];
    for (let i = 0; i < MAX_TRIES; i++) {
      await all.turn();
      const row = await all.row(id);
      expect(row).toMatchObject({ tries: i + 1, last_error: 'Answered 500.', delivered_at: null });
      if (row?.next_at == null) break;
      waits.push((row.next_at - all.clock.now()) / 1000);
      all.clock.jump(row.next_at - all.clock.now() - 1);
      await all.turn();
      expect(receiver.calls).toHaveLength(i + 1);
      all.clock.jump(1);
    }
    expect(waits).toEqual([10, 30, 90, 270, 810, 2430, 3600]);
    expect(new Set(receiver.calls.map((call) => call.headers['webhook-id']))).toEqual(new Set([id]));
    expect(await all.row(id)).toMatchObject({ tries: MAX_TRIES, next_at: null, delivered_at: null });
    all.clock.jump(86_400_000);
    await all.turn();
    expect(receiver.calls).toHaveLength(MAX_TRIES);
  });

  it('one that recovers is delivered, and the error is gone', async () => {
    const receiver = own(await hook());
    receiver.answer = (_call, response) => response.writeHead(receiver.calls.length < 3 ? 503 : 200).end();
    const all = await world();
    const id = await all.add('webhook', receiver.url);
    for (let i = 0; i < 3; i++) {
      await all.turn();
      all.clock.jump(60_000 * 10);
    }
    expect(await all.row(id)).toMatchObject({ tries: 3, last_error: null, delivered_at: expect.any(Number) });
  });

  it('410 ends it at once; a redirect to an address inside is not followed', async () => {
    const receiver = own(await hook());
    receiver.answer = ({ path }, response) =>
      path === '/gone'
        ? response.writeHead(410).end()
        : response.writeHead(307, { location: 'http://169.254.169.254/latest/meta-data/' }).end();
    const all = await world();
    const gone = await all.add('webhook', `${receiver.url}/gone`);
    const moved = await all.add('webhook', `${receiver.url}/moved`);
    await all.turn();
    expect(await all.row(gone)).toMatchObject({ tries: 1, next_at: null, last_error: expect.stringContaining('410') });
    expect(await all.row(moved)).toMatchObject({
      next_at: expect.any(Number),
      last_error: 'Answered 307; redirects are not followed.',
    });
    expect(receiver.calls).toHaveLength(2);
  });

  it.each([
    'http://169.254.169.254/hook',
    'http://10.0.0.1/',
    'http://localhost:1/',
    'https://metadata.google.internal/',
  ])('%s is not called, even when it stands in the store', async (url) => {
    const all = await world();
    const id = await all.add('webhook', url);
    await all.turn();
    expect(await all.row(id)).toMatchObject({
      delivered_at: null,
      last_error: expect.stringMatching(/host|reach|address/),
    });
  });

  it('one that hangs is left after the time limit and holds up neither others nor the rest of its own for long', async () => {
    const receiver = own(await hook());
    receiver.answer = ({ path }, response) => {
      if (path !== '/hangs') response.writeHead(200).end();
    };
    const all = await world({ limitMs: 400 });
    const hanging = await all.addMany('webhook', Array<string>(250).fill(`${receiver.url}/hangs`));
    all.clock.jump(1);
    const others = [await all.add('webhook', `${receiver.url}/a`), await all.add('webhook', `${receiver.url}/b`)];
    const before = systemClock.monotonic();
    await all.turn();
    expect(systemClock.monotonic() - before).toBeLessThan(20_000);
    for (const id of others) expect(await all.row(id)).toMatchObject({ delivered_at: expect.any(Number) });
    expect(receiver.calls.filter(({ path }) => path === '/hangs')).toHaveLength(1);
    expect(await all.row(hanging[0] ?? '')).toMatchObject({ tries: 1, last_error: 'No answer within 0.4 seconds.' });
    expect(await all.row(hanging[1] ?? '')).toMatchObject({ tries: 0, last_error: null });
    receiver.answer = (_call, response) => response.writeHead(200).end();
    for (let i = 0; i < 4; i++) {
      all.clock.jump(10_000);
      await all.turn();
    }
    const left = await all.tables.systemRead((tx) => tx.count('alert_deliveries', { where: { delivered_at: null } }));
    expect(left).toBe(0);
    expect(receiver.calls).toHaveLength(253);
  });

  it('an organisation with hundreds of receivers that hang leaves places to others', async () => {
    const receiver = own(await hook());
    receiver.answer = ({ path }, response) => {
      if (path === '/other') response.writeHead(200).end();
    };
    const all = await world({ limitMs: 60 });
    await all.tables.systemWrite(async (tx) => {
      await tx.insert('organisations', organisationRow('org-2'));
      await tx.insert('workspaces', workspaceRow('org-2', 'ws-2'));
      const bucket = tenantRows('org-2', 'ws-2').usage_buckets;
      await tx.insert('usage_buckets', { ...bucket, id: 'bucket-2' });
    });
    const urls = Array.from({ length: 250 }, (_, i) => `${receiver.url}/hangs/${i}`);
    await all.addMany('webhook', urls);
    all.clock.jump(1);
    const theirs = { organisation_id: 'org-2', workspace_id: 'ws-2', bucket_id: 'bucket-2' };
    const id = await all.add('webhook', `${receiver.url}/other`, theirs);
    await all.turn();
    expect(await all.row(id)).toMatchObject({ delivered_at: expect.any(Number) });
    // Four at a time: before theirs came at most two rounds of the others.
    expect(receiver.calls.findIndex(({ path }) => path === '/other')).toBeLessThan(9);
  });

  it('who stalls past its time sends nothing that another node has taken over', async () => {
    const receiver = own(await hook());
    const all = await world();
    const [first, second] = await all.addMany('webhook', [`${receiver.url}/a`, `${receiver.url}/a`]);
    let stalled = false;
    receiver.answer = async (_call, response) => {
      if (!stalled) {
        stalled = true;
        all.clock.jump(60_000);
        await all.turn();
      }
      response.writeHead(200).end();
    };
    await all.turn();
    expect(receiver.calls.map((call) => call.headers['webhook-id'])).toEqual([first, first, second]);
    expect(await all.row(second ?? '')).toMatchObject({ tries: 1, delivered_at: expect.any(Number) });
  });

  it.each(['sqlite', 'postgres'] as const)(
    'two nodes at the same time send each of 30 alerts once, on %s',
    async (engine) => {
      const receiver = own(await hook());
      const all = await world({ engine });
      const urls = Array.from({ length: 30 }, (_, i) => `${receiver.url}/${i % 7}`);
      await all.addMany('webhook', urls);
      await Promise.all([all.turn(), all.turn()]);
      await all.turn();
      expect(receiver.calls).toHaveLength(30);
      expect(new Set(receiver.calls.map((call) => call.headers['webhook-id'])).size).toBe(30);
    },
  );

  it('killed between the call and its note: it is sent again with the same id, and nothing is lost', async () => {
    const receiver = own(await hook());
    const all = await world();
    const id = await all.add('webhook', receiver.url);
    const dying = Object.assign(Object.create(all.tables) as Tables, {
      systemRead: all.tables.systemRead,
      // Its row is taken and the try is written down; then the call; then the store is gone.
      systemWrite: ((run, more) =>
        receiver.calls.length === 0
          ? all.tables.systemWrite(run, more)
          : Promise.reject(new Error('killed'))) satisfies Tables['systemWrite'],
    });
    await alertTurn(parts(dying, all.clock));
    expect(receiver.calls).toHaveLength(1);
    await all.turn();
    expect(receiver.calls).toHaveLength(1);
    all.clock.jump(60_000);
    await all.turn();
    expect(receiver.calls.map((call) => call.headers['webhook-id'])).toEqual([id, id]);
    expect(await all.row(id)).toMatchObject({ tries: 2, next_at: null, delivered_at: expect.any(Number) });
  });

  it('the leader delivers by itself, survives a store that is away, and stops at once in the middle of a call', async () => {
    const receiver = own(await hook());
    const all = await world();
    let away = true;
    const tables = Object.assign(Object.create(all.tables) as Tables, {
      systemWrite: all.tables.systemWrite,
      systemRead: ((run) =>
        away
          ? Promise.reject(new Error('the store is away'))
          : all.tables.systemRead(run)) satisfies Tables['systemRead'],
    });
    await all.add('webhook', `${receiver.url}/first`);
    const clock = all.clock;
    const job = startAlertDeliveries({ ...parts(tables, clock), node: 'a' });
    const until = async (good: () => boolean) => {
      for (let i = 0; i < 500 && !good(); i++) {
        await clock.advance(500);
        await new Promise((resolve) => systemClock.after(2, () => resolve(undefined)));
      }
      expect(good()).toBe(true);
    };
    await clock.advance(15_000);
    away = false;
    await until(() => receiver.calls.length === 1);
    receiver.answer = () => undefined;
    await all.add('webhook', `${receiver.url}/second`);
    await until(() => receiver.calls.length === 2);
    const before = systemClock.monotonic();
    await job.close();
    expect(systemClock.monotonic() - before).toBeLessThan(2_000);
  });
});

/** The subject as a mail program shows it (RFC 2047). */
function subjectOf(raw: string): string {
  const [, folded = ''] = /^Subject: (.*(?:\r?\n[ \t].*)*)/m.exec(raw) ?? [];
  const words = folded.replace(/\?=\r?\n[ \t]=\?/g, '?==?').replace(/=\?UTF-8\?Q\?(.*?)\?=/g, '$1');
  return words
    .replace(/_/g, ' ')
    .replace(/=([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
}

describe('mails', () => {
  it('a mail says which limit, how much of it is used, when it resets and where the console is', async () => {
    const sink = own(await mailSink({ user: 'sluice', password: 'p@ss:word/1' }));
    const all = await world({ mailer: smtp(sink.port, { user: 'sluice', password: new Secret('p@ss:word/1') }) });
    const id = await all.add('email', 'ops@team.example');
    await all.turn();
    await all.turn();
    expect(await all.row(id)).toMatchObject({ tries: 1, delivered_at: START, last_error: null });
    expect(sink.logins).toEqual(['sluice']);
    expect(sink.mails).toHaveLength(1);
    expect(sink.mails[0]).toMatchObject({ from: 'alerts@sluice.example', to: ['ops@team.example'] });
    const raw = sink.mails[0]?.raw ?? '';
    expect(raw).toMatch(/^From: Sluice <alerts@sluice\.example>\r?$/m);
    expect(subjectOf(raw)).toBe('Usage limit near its end: policy "team budget"');
    for (const text of [
      'The usage limit of policy "team budget" has crossed its alert threshold.',
      '8.25 US dollars',
      '10 US dollars',
      '8 US dollars',
      '2027-04-01 00:00 UTC',
      'metadata._user:alice',
      'research',
      'https://sluice.example/console/',
    ]) {
      expect(raw).toContain(text);
    }
    expect(raw).toMatch(new RegExp(`^Message-ID: <${id}@sluice\\.example>\\r?$`, 'm'));
    expect(raw).toMatch(/^Auto-Submitted: auto-generated\r?$/m);
    expect(raw).not.toContain('p@ss');
  });

  it('names with line breaks and commas make no header and no recipient of their own', async () => {
    const sink = own(await mailSink());
    const all = await world({ mailer: smtp(sink.port) });
    const name = 'x\r\nBcc: thief@evil.example\r\n\r\n<b>\u2028Subject: forged';
    const body = { ...EVENT, data: { ...EVENT.data, owner: { ...EVENT.data.owner, name } } };
    await all.add('email', 'ops@team.example', { body });
    await all.turn();
    expect(sink.mails[0]?.to).toEqual(['ops@team.example']);
    const [head = ''] = (sink.mails[0]?.raw ?? '').split(/\r?\n\r?\n/);
    expect(
      head
        .match(/^(?:Bcc|Subject|To|From):/gim)
        ?.map((line) => line.toLowerCase())
        .sort(),
    ).toEqual(['from:', 'subject:', 'to:']);
  });

  it('a refused recipient is given up at once; the others get theirs', async () => {
    const sink = own(await mailSink());
    sink.refuse = (address) => (address === 'gone@team.example' ? [550, '5.1.1 no such user'] : null);
    const all = await world({ mailer: smtp(sink.port) });
    const gone = await all.add('email', 'gone@team.example');
    const here = await all.add('email', 'here@team.example');
    await all.turn();
    expect(await all.row(gone)).toMatchObject({ tries: 1, next_at: null, last_error: expect.stringContaining('550') });
    expect(await all.row(here)).toMatchObject({ delivered_at: START });
  });

  it.each([
    ['451 for now', [451, '4.7.1 try again later'] as const, '451'],
    ['a cut connection', 'drop' as const, 'failed'],
  ])('%s is tried again and arrives once', async (_title, refusal, said) => {
    const sink = own(await mailSink());
    let refused = 0;
    sink.refuse = () => (refused++ === 0 ? refusal : null);
    const all = await world({ mailer: smtp(sink.port) });
    const id = await all.add('email', 'ops@team.example');
    await all.turn();
    expect(await all.row(id)).toMatchObject({
      tries: 1,
      next_at: START + 10_000,
      last_error: expect.stringContaining(said),
    });
    all.clock.jump(10_000);
    await all.turn();
    expect(await all.row(id)).toMatchObject({ tries: 2, delivered_at: START + 10_000, last_error: null });
    expect(sink.mails).toHaveLength(1);
  });

  it('a refused login is tried again, and its password is in no error', async () => {
    const sink = own(await mailSink({ user: 'sluice', password: 'right' }));
    const all = await world({ mailer: smtp(sink.port, { user: 'sluice', password: new Secret('wrong-password') }) });
    const id = await all.add('email', 'ops@team.example');
    await all.turn();
    const row = await all.row(id);
    expect(row).toMatchObject({
      delivered_at: null,
      next_at: expect.any(Number),
      last_error: expect.stringContaining('535'),
    });
    expect(JSON.stringify(row)).not.toContain('wrong-password');
  });

  it('without a mail server each is recorded as not configured, once', async () => {
    const warned: string[] = [];
    const all = await world({ log: { ...silentLog, warn: (message) => warned.push(message) } });
    const id = await all.add('email', 'ops@team.example');
    for (let i = 0; i < 3; i++) {
      await all.turn();
      all.clock.jump(3_600_000);
    }
    expect(await all.row(id)).toMatchObject({
      tries: 1,
      next_at: null,
      delivered_at: null,
      last_error: 'E-mail is not configured on this installation (SLUICE_SMTP_URL).',
    });
    expect(warned).toHaveLength(1);
  });
});

it('what was finished a month ago is removed, what still waits stays', async () => {
  const all = await world();
  const old = await all.add('webhook', 'https://a.example/', { next_at: null });
  const waiting = await all.add('webhook', 'https://a.example/');
  all.clock.jump(31 * 86_400_000);
  const young = await all.add('webhook', 'https://a.example/', { next_at: null });
  await removeOld(all.tables);
  expect([await all.row(old), (await all.row(waiting))?.id, (await all.row(young))?.id]).toEqual([
    undefined,
    waiting,
    young,
  ]);
});
