/** Sign-in links by mail: on a whole server with a real mail server, and the form in a real browser. */
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { launchBrowser } from '../../test/support/browser.ts';
import { consoleServer, type Seeded, seed } from '../../test/support/console.ts';
import { type ConsoleAnswer, type MailingServer, startMailingServer } from '../../test/support/mailing-server.ts';
import { temporaryTables } from '../../test/support/tables.ts';
import { systemClock, TestClock } from '../kernel/clock.ts';
import type { Tables } from '../store/ports.ts';

const PUBLIC_URL = 'https://sluice.example';
const LINK = /https:\/\/sluice\.example\/console\/sign-in#([0-9A-Za-z]{43})/g;

const userOf = ({ text }: ConsoleAnswer) => (JSON.parse(text) as { user: { id: string; email: string } }).user;

describe('a server with a mail server', () => {
  let server: MailingServer;

  beforeAll(async () => {
    server = await startMailingServer(PUBLIC_URL);
  });
  afterAll(async () => {
    await server?.stop();
  });

  const post = (path: string, body: unknown, headers: Record<string, string> = {}) =>
    server.send('POST', `/console/api/${path}`, body, headers);
  const organisation = async (name: string, email: string) => {
    const owner = { email, first_name: 'Ada', last_name: 'Lovelace' };
    const made = await server.admin('POST', '/operator/organisations', { name, owner }, server.first.operator_api_key);
    return made.body as Record<string, string>;
  };

  it('mails a link that begins with the public address, lasts 15 minutes and works once', async () => {
    const made = await organisation('Acme', 'ada@acme.example');
    const answer = await post('sign-in-link', { email: 'Ada@Acme.example' }, { host: 'attacker.example' });
    expect([answer.status, JSON.parse(answer.text)]).toEqual([202, { object: 'console_sign_in_link' }]);
    const [text = ''] = await server.mailed('ada@acme.example');
    expect(text).toContain('The link works once, for 15 minutes, in the browser that asked for it.');
    expect(text).not.toContain('attacker');
    const [token] = [...text.matchAll(LINK)].map((match) => match[1]);
    const signedIn = await post('session', { token }, { cookie: answer.cookie });
    expect(userOf(signedIn)).toMatchObject({ id: made.user_id, email: 'ada@acme.example' });
    expect((await post('session', { token }, { cookie: answer.cookie })).status).toBe(401);

    const range = 'start_time=2020-01-01T00:00:00Z&end_time=2099-01-01T00:00:00Z';
    const { body } = await server.admin('GET', `/audit-logs?${range}`, undefined, made.admin_api_key);
    const rows = body.records as Record<string, unknown>[];
    const asked = rows.find(({ uri }) => uri === '/console/api/sign-in-link');
    expect(asked).toMatchObject({
      action: 'create',
      resource_type: 'console sessions',
      resource_id: made.user_id,
      user_id: null,
      client_ip: '127.0.0.1',
    });
    expect(JSON.stringify(rows)).not.toContain(token);
  });

  it('mails one letter with a link for each organisation that knows the address', async () => {
    const first = await organisation('First', 'both@x.example');
    const second = await organisation('Second', 'both@x.example');
    const { status, cookie } = await post('sign-in-link', { email: 'both@x.example' });
    expect(status).toBe(202);
    const [text = ''] = await server.mailed('both@x.example');
    expect(text).toMatch(/First:[\s\S]*Second:/);
    const users: string[] = [];
    for (const [, token] of text.matchAll(LINK)) users.push(userOf(await post('session', { token }, { cookie })).id);
    expect(users).toEqual([first.user_id, second.user_id]);
  });

  it('shows names of organisations so that no mail program makes a link of them', async () => {
    const names = [
      'https://evil.example/x?y=1',
      'www.evil.example',
      'sign-in@evil.example',
      'evil。example',
      'a\u200b:',
      '…',
    ];
    const plain = ['O’Neil & Sons, St Anna-Hospital', 'Größe 2', '株式会社'];
    for (const name of [...names, ...plain]) await organisation(name, 'many@x.example');
    await post('sign-in-link', { email: 'many@x.example' });
    const [text = ''] = await server.mailed('many@x.example');
    expect(text.match(LINK)).toHaveLength(names.length + plain.length);
    expect(text.replaceAll(LINK, '').replace(/:$/gm, '')).not.toMatch(/[:/@。]|\S\.\S/);
    for (const name of ['https evil example x y=1', 'sign-in evil example', 'a', ...plain])
      expect(text).toContain(`\n${name}:\n`);
  });

  it('refuses another origin, and what is no address', async () => {
    const from = await post('sign-in-link', { email: 'ada@acme.example' }, { origin: 'https://attacker.example' });
    expect(from.status).toBe(403);
    expect((await post('sign-in-link', { email: 'nothing' })).status).toBe(400);
  });
});

describe('on a clock that moves only when told to', () => {
  async function world(options: { mail?: boolean } = {}) {
    const clock = new TestClock();
    const base = await temporaryTables(clock);
    /** Look-ups wait while it is there. */
    let hold: Promise<void> | null = null;
    /** Happens behind the next look-up. */
    let meanwhile: (() => Promise<void>) | null = null;
    const tables: Tables = new Proxy(base, {
      get(target, name) {
        const value: unknown = Reflect.get(target, name, target);
        if (name === 'systemRead')
          return async (run: never) => {
            await hold;
            const found: unknown = await target.systemRead(run);
            const happens = meanwhile;
            meanwhile = null;
            await happens?.();
            return found;
          };
        return typeof value === 'function' ? value.bind(target) : value;
      },
    });
    const people: Seeded = await seed(base, clock);
    const mails: { to: string; text: string }[] = [];
    const post = (mail: { to: string; text: string }) => mails.push(mail);
    const server = await consoleServer({ tables, clock, ...(options.mail === false ? {} : { post }) });
    onTestFinished(async () => {
      await server.close();
      await base.close();
    });
    const ask = async (email: string) => {
      const answer = await fetch(`${server.url}/console/api/sign-in-link`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', origin: server.url },
        body: JSON.stringify({ email }),
      });
      const { date: _date, 'set-cookie': _cookie, ...headers } = Object.fromEntries(answer.headers);
      return { status: answer.status, headers, text: await answer.text() };
    };
    const links = () => base.systemRead((tx) => tx.count('console_sessions', { where: { kind: 'link' } }));
    const settle = async () => {
      await clock.advance(1_000);
      await new Promise((resolve) => setTimeout(resolve, 50));
    };
    return {
      ...people,
      clock,
      tables: base,
      mails,
      ask,
      links,
      settle,
      url: server.url,
      stop: (on: Promise<void>) => (hold = on),
      behindLookUp: (happens: () => Promise<void>) => (meanwhile = happens),
    };
  }

  it('answers the same, before anything is looked up, whether or not a user has the address', async () => {
    const w = await world();
    const gate = Promise.withResolvers<void>();
    w.stop(gate.promise);
    const known = await w.ask('owner@acme.example');
    const unknown = await w.ask('nobody@acme.example');
    await w.settle();
    expect(known.status).toBe(202);
    expect(unknown).toEqual(known);
    expect([w.mails, await w.links()]).toEqual([[], 0]);
    gate.resolve();
    await expect.poll(() => w.mails.map(({ to }) => to)).toEqual(['owner@acme.example']);
    expect(await w.links()).toBe(1);
  });

  it('mails nothing to users who were removed, or whose organisation is suspended', async () => {
    const w = await world();
    await w.tables.systemWrite(async (tx) => {
      await tx.update('users', { id: w.member.id }, { status: 'archived' });
    });
    await w.ask('member@acme.example');
    await w.settle();
    await w.tables.systemWrite(async (tx) => {
      await tx.update('organisations', { id: w.organisationId }, { status: 'suspended' });
    });
    await w.ask('owner@acme.example');
    await w.settle();
    expect([w.mails, await w.links()]).toEqual([[], 0]);
  });

  it.each([
    ['gets another address', { email: 'new@acme.example' }],
    ['is removed', { status: 'archived' }],
  ] as const)('mails nothing to a user who %s while the link is made', async (_title, patch) => {
    const w = await world();
    await w.ask('member@acme.example');
    w.behindLookUp(async () => {
      await w.tables.systemWrite((tx) => tx.update('users', { id: w.member.id }, patch));
    });
    await w.settle();
    expect([w.mails, await w.links()]).toEqual([[], 0]);
    const user = await w.tables.systemRead((tx) => tx.find('users', { id: w.member.id }));
    expect(user).toMatchObject(patch);
  });

  it('takes three a quarter of an hour for one mail address, known or not, and then again', async () => {
    const w = await world();
    for (const email of ['owner@acme.example', 'nobody@acme.example']) {
      const statuses = [];
      for (let i = 0; i < 4; i++) statuses.push((await w.ask(i % 2 ? email.toUpperCase() : email)).status);
      expect(statuses).toEqual([202, 202, 202, 429]);
    }
    const plain = (answer: object) => JSON.stringify(answer).replace(/[0-9a-f]{8}-[-0-9a-f]{27}|req-\w+/g, '<request>');
    const refused = await w.ask('owner@acme.example');
    expect(Number(refused.headers['retry-after'])).toBeGreaterThan(0);
    expect(plain(await w.ask('nobody@acme.example'))).toEqual(plain(refused));
    await w.clock.advance(15 * 60_000);
    expect((await w.ask('owner@acme.example')).status).toBe(202);
  });

  it('takes thirty a quarter of an hour from one client', async () => {
    const w = await world();
    const statuses = [];
    for (let i = 0; i < 31; i++) statuses.push((await w.ask(`user${i}@x.example`)).status);
    expect(statuses.indexOf(429)).toBe(30);
  });

  it('without a mail server offers nothing and says what to do', async () => {
    const w = await world({ mail: false });
    const offered = await (await fetch(`${w.url}/console/api/sign-in`)).json();
    expect(offered).toEqual({ object: 'console_sign_in', mailed_links: false, passkeys: false });
    const answer = await w.ask('owner@acme.example');
    expect([answer.status, answer.text]).toEqual([404, expect.stringContaining('console-link')]);
  });
});

const browser = await launchBrowser();
describe.skipIf(browser.context === null)(`the form ${browser.context ? '' : `(skipped: ${browser.reason})`}`, () => {
  let tables: Tables;
  beforeAll(async () => {
    tables = await temporaryTables();
    await seed(tables, systemClock);
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await tables?.close();
  });

  const open = async (post?: (mail: { text: string }) => void): Promise<{ page: Page; url: string }> => {
    const server = await consoleServer({ tables, clock: systemClock, ...(post ? { post } : {}) });
    await browser.context?.clearCookies();
    const page = (await browser.context?.newPage()) as Page;
    page.setDefaultTimeout(5_000);
    onTestFinished(async () => {
      await page.close();
      await server.close();
    });
    const offered = page.waitForResponse(`${server.url}/console/api/sign-in`);
    await page.goto(`${server.url}/console/`);
    await page.getByRole('heading', { name: 'Sign in', level: 1 }).waitFor();
    await offered;
    return { page, url: server.url };
  };
  const submit = (page: Page) => page.getByRole('button', { name: 'E-mail me a link' });

  it('mails a link that signs in', async () => {
    const mails: { text: string }[] = [];
    const { page } = await open((mail) => mails.push(mail));
    await page.getByLabel('Your e-mail address').fill('owner@acme.example');
    await submit(page).click();
    await page.getByText('If a user has the address owner@acme.example').waitFor();
    await expect.poll(() => mails.length).toBe(1);
    await page.goto('about:blank');
    await page.goto(/http\S+/.exec(mails[0]?.text ?? '')?.[0] ?? '');
    await page.getByRole('heading', { name: 'Make your first request' }).waitFor();
    await page.getByRole('button', { name: 'Sign out', exact: true }).click();
  });

  it('is not there without a mail server', async () => {
    const { page } = await open();
    await page.getByText('npm run sluice -- console-link').first().waitFor();
    await page.evaluate('new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))');
    expect(await submit(page).count()).toBe(0);
  });
});
