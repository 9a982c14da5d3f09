import type { Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { isCurrent } from '../../../console/ensure-built.mjs';
import { systemClock } from '../../src/kernel/clock.ts';
import type { StoredLog, Tables } from '../../src/store/ports.ts';
import { launchBrowser } from '../support/browser.ts';
import { type ConsoleServer, consoleServer, recordRow, type Seeded, type StandIn, seed } from '../support/console.ts';
import { temporaryTables } from '../support/tables.ts';

const browser = await launchBrowser();
const TITLE = `the console in a real browser${browser.context ? '' : ` (skipped: ${browser.reason})`}`;
const TRACE = '0192f5a0-2222-7000-8000-00000000000b';

describe.skipIf(browser.context === null)(TITLE, () => {
  let tables: Tables;
  let people: Seeded;
  let server: ConsoleServer;
  let page: Page;
  let standIn: StandIn;
  let records: StoredLog[] = [];
  /** What no page may do: break its content security policy, throw, or ask another host. */
  let complaints: string[] = [];

  beforeAll(async () => {
    expect(isCurrent(), 'console/dist is not built from these sources: npm run console').toBe(true);
    tables = await temporaryTables();
    people = await seed(tables, systemClock);
    server = await consoleServer({
      tables,
      clock: systemClock,
      logs: () => records,
      standIn: (reply, body, principal) => standIn(reply, body, principal),
    });
  });
  afterAll(async () => {
    if (browser.context) await browser.close();
    await server?.close();
    await tables?.close();
  });

  beforeEach(async () => {
    if (!browser.context) return;
    complaints = [];
    records = [];
    standIn = answer(['Hello', ' from', ' the sandbox.']);
    await browser.context.clearCookies();
    page = await browser.context.newPage();
    page.setDefaultTimeout(5_000);
    page.on('pageerror', (error) => complaints.push(error.message));
    page.on('request', (request) => {
      if (!request.url().startsWith(`${server.url}/`)) complaints.push(`asked ${request.url()}`);
    });
    page.on('console', (message) => {
      if (/content security policy/i.test(message.text())) complaints.push(message.text());
    });
  });
  afterEach(async () => {
    await page?.close();
    expect(complaints).toEqual([]);
  });

  const heading = (name: string) => page.getByRole('heading', { name, level: 1 });
  const button = (name: string) => page.getByRole('button', { name, exact: true });
  const output = () => page.getByTestId('answer');
  const signIn = async () => {
    await page.goto(await server.link(people.owner));
    await heading('Make your first request').waitFor();
  };

  test('a one-time link signs in, leaves no token in the address, and works only once', async () => {
    const link = await server.link(people.owner);
    await page.goto(link);
    await heading('Make your first request').waitFor();
    expect(page.url()).toBe(`${server.url}/console/`);
    await page.reload();
    await heading('Make your first request').waitFor();

    await button('Sign out').click();
    await heading('Sign in').waitFor();
    expect(page.url()).toBe(`${server.url}/console/sign-in`);
    await page.goto('about:blank');
    complaints = [];
    await page.goto(link);
    await heading('This link did not work').waitFor();
    await expect(page.getByRole('alert').textContent()).resolves.toContain('has been used');
    await page.getByText('npm run sluice -- console-link', { exact: true }).waitFor();

    await page.getByLabel('Or paste the link here').fill(await server.link(people.owner));
    await button('Sign in').click();
    await heading('Make your first request').waitFor();
  });

  test('the console without a sign-in leads to the sign-in page, and says over the page when the session has ended', async () => {
    await page.goto(`${server.url}/`);
    await heading('Sign in').waitFor();
    await signIn();
    await browser.context?.clearCookies();
    await page.getByLabel('Prompt').fill('Not lost');
    await button('Run').click();
    const over = page.getByRole('dialog', { name: 'Your session has ended' });
    await over.waitFor();
    expect(await over.getByRole('link', { name: 'Sign in again' }).getAttribute('href')).toBe('/console/sign-in');
    await over.getByRole('button', { name: 'I have signed in' }).click();
    await over.getByText('You are not signed in yet.').waitFor();

    const other = await browser.context?.newPage();
    await other?.goto(await server.link(people.owner));
    await other?.getByRole('heading', { name: 'Make your first request' }).waitFor();
    await other?.close();
    await over.getByRole('button', { name: 'I have signed in' }).click();
    await over.waitFor({ state: 'detached' });
    expect(await page.getByLabel('Prompt').inputValue()).toBe('Not lost');
    await button('Run again').click();
    await output().getByText('Hello from the sandbox.').waitFor();
  });

  test('a first request streams token by token and ends with status, times, tokens, cost and ids', async () => {
    const gate = Promise.withResolvers<void>();
    const sent: Record<string, unknown>[] = [];
    standIn = async (reply, body) => {
      sent.push(body);
      start(reply);
      reply.write(delta('Hello'));
      await gate.promise;
      reply.write(delta(' there'));
      reply.end(`${usage(9, 2)}data: [DONE]\n\n`);
    };
    records = [recordRow({ id: 'req-1', trace_id: TRACE, user_id: people.owner.id, cost_micros: 42 })];
    await signIn();
    await page.getByLabel('Model').selectOption('@sandbox/echo');
    await page.getByLabel('Prompt').fill('Hello there');
    await button('Run').click();
    await output().getByText('Hello', { exact: true }).waitFor();
    expect(await button('Stop').isVisible()).toBe(true);
    gate.resolve();
    await output().getByText('Hello there').waitFor();
    await button('Run again').waitFor();

    const metrics = page.getByTestId('metrics');
    await metrics.getByText('$0.000042').waitFor();
    expect(await metrics.textContent()).toMatch(
      /^Status200 OKFirst token[\d.]+ m?sTotal[\d.]+ m?sTokens in \/ out9 \/ 2Cost/,
    );
    await page.getByText(TRACE, { exact: true }).waitFor();
    await page.getByText('req-1', { exact: true }).waitFor();
    expect(sent).toEqual([
      {
        model: '@sandbox/echo',
        messages: [{ role: 'user', content: 'Hello there' }],
        stream: true,
        stream_options: { include_usage: true },
      },
    ]);
    await page.getByText('Answer as received').click();
    await page.getByText('data: [DONE]').waitFor();
  });

  test('Stop ends the request at the gateway and keeps what came', async () => {
    const closed = Promise.withResolvers<void>();
    let requests = 0;
    standIn = (reply) => {
      requests += 1;
      start(reply);
      reply.write(delta('One token'));
      reply.on('close', () => closed.resolve());
    };
    await signIn();
    await button('Run').click();
    await output().getByText('One token').waitFor();
    await button('Stop').click();
    await closed.promise;
    await page.getByText('Stopped', { exact: true }).first().waitFor();
    expect(await output().textContent()).toBe('One token');
    expect(await button('Run again').isEnabled()).toBe(true);
    expect(requests).toBe(1);
  });

  test('a refusal shows its status, message and when to try again; a cut stream keeps its part and says so', async () => {
    standIn = (reply) => {
      const body = {
        error: { message: 'Rate limit of key demo exceeded: 1 rpm', type: 'rate_limit_exceeded', code: '429' },
      };
      reply.writeHead(429, { 'content-type': 'application/json', 'retry-after': '7', 'x-gateway-trace-id': TRACE });
      reply.end(JSON.stringify(body));
    };
    await signIn();
    await button('Run').click();
    const alert = page.getByRole('alert');
    await alert.getByText('Rate limit of key demo exceeded: 1 rpm').waitFor();
    expect(await alert.textContent()).toContain('429 Too many requests');
    expect(await alert.textContent()).toContain('Try again in 7 s.');

    standIn = answer(['Half an'], false);
    await button('Run again').click();
    await alert.getByText('The stream ended before the answer was complete.').waitFor();
    expect(await output().textContent()).toBe('Half an');
  });

  test('an answer is text, never markup', async () => {
    const markup = '<img src=x onerror="document.title=1"><script>document.title=2</script>';
    standIn = answer([markup]);
    await signIn();
    await button('Run').click();
    await output().getByText(markup).waitFor();
    expect(await output().locator('img, script').count()).toBe(0);
  });

  test('the code samples follow prompt and model, hold no key, and can be copied', async () => {
    await signIn();
    await page.getByLabel('Prompt').fill("It's me");
    const code = page.getByRole('tabpanel');
    await code.getByText(`"content": "It'\\''s me"`).waitFor();
    await page.getByRole('tab', { name: 'curl' }).focus();
    await page.keyboard.press('ArrowRight');
    await code.getByText('pip install openai').waitFor();
    expect(await page.getByRole('tab', { name: 'Python' }).getAttribute('aria-selected')).toBe('true');
    await page.keyboard.press('End');
    await code.getByText(`baseURL: "${server.url}"`).waitFor();
    expect(await page.locator('body').textContent()).not.toContain('slc_');
    await browser.context?.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: server.url });
    await button('Copy Base URL').click();
    await button('Copied Base URL').waitFor();
    expect(await page.evaluate('navigator.clipboard.readText()')).toBe(`${server.url}/v1`);
  });

  test('the whole way works by keyboard alone, and on a phone nothing is wider than the screen', async () => {
    await page.setViewportSize({ width: 360, height: 740 });
    await signIn();
    await page.getByLabel('Prompt').focus();
    await page.keyboard.press('Control+Enter');
    await output().getByText('Hello from the sandbox.').waitFor();
    await page.getByText('Answer as received').click();
    for (const scheme of ['light', 'dark'] as const) {
      await page.emulateMedia({ colorScheme: scheme });
      expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
    }
    await button('More').focus();
    await page.keyboard.press('Enter');
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out' }).focus();
    await page.keyboard.press('Enter');
    await heading('Sign in').waitFor();
    expect(await page.evaluate('document.activeElement.textContent')).toBe('Sign in');
    expect(await page.evaluate('document.documentElement.scrollWidth')).toBe(360);
  });
});

type Raw = Parameters<StandIn>[0];

function start(reply: Raw) {
  reply.writeHead(200, { 'content-type': 'text/event-stream', 'x-gateway-trace-id': TRACE });
}

const delta = (content: string) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
const usage = (input: number, output: number) =>
  `data: ${JSON.stringify({ choices: [], usage: { prompt_tokens: input, completion_tokens: output } })}\n\n`;

/** Streams these pieces at once; without `complete` the end mark is missing. */
function answer(pieces: readonly string[], complete = true): StandIn {
  return (reply) => {
    start(reply);
    for (const piece of pieces) reply.write(delta(piece));
    reply.end(complete ? 'data: [DONE]\n\n' : '');
  };
}
