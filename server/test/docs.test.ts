import type { AddressInfo } from 'node:net';
import fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DOCS_ROUTES, registerDocs } from '../src/admin/docs.ts';
import { buildOpenApi } from '../src/admin/openapi.ts';
import { ACTIONS } from '../src/resources/catalog.ts';
import { type Launched, launchBrowser } from './support/browser.ts';

let app: FastifyInstance;
let origin = '';
let browser: Launched;

beforeAll(async () => {
  app = fastify({ exposeHeadRoutes: false });
  registerDocs(app, () => buildOpenApi(ACTIONS, '1.2.3'));
  await app.listen({ host: '127.0.0.1', port: 0 });
  origin = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  browser = await launchBrowser();
});

afterAll(async () => {
  if (browser?.context) await browser.close();
  await app?.close();
});

describe('the API reference', () => {
  it('serves the document and the page without a credential', async () => {
    for (const [, path] of DOCS_ROUTES) {
      const answer = await fetch(`${origin}${path}`);
      expect(answer.status, path).toBe(200);
      expect(answer.headers.get('x-content-type-options')).toBe('nosniff');
      await answer.arrayBuffer();
    }
    const document = (await (await fetch(`${origin}/openapi.json`)).json()) as {
      openapi: string;
      info: { version: string };
    };
    expect(document.openapi).toBe('3.1.0');
    expect(document.info.version).toBe('1.2.3');
  });

  it('runs only its own script and the one inline script that the policy names', async () => {
    const csp = (await fetch(`${origin}/docs/`)).headers.get('content-security-policy') ?? '';
    expect(csp).toMatch(/script-src 'self' 'sha256-[A-Za-z0-9+/=]{44}';/);
    expect(csp).toContain("default-src 'none'");
    expect(csp).not.toContain('http');
    expect(csp).not.toContain('unsafe-eval');
  });

  it('works offline: the page renders and asks no other host for anything', async (context) => {
    if (!browser.context) return context.skip(browser.reason);
    const page = await browser.context.newPage();
    const elsewhere: string[] = [];
    const errors: string[] = [];
    page.on('request', (request) => {
      if (!request.url().startsWith(origin) && !/^(data|blob):/.test(request.url())) elsewhere.push(request.url());
    });
    page.on('pageerror', (error) => errors.push(error.message));
    page.on('console', (message) => {
      if (message.type() === 'error') errors.push(message.text());
    });
    await page.goto(`${origin}/docs/`);
    await page.getByText('Create an API key').first().waitFor({ timeout: 15_000 });
    await page.getByRole('heading', { name: 'API keys' }).first().waitFor({ timeout: 15_000 });
    expect(elsewhere).toEqual([]);
    expect(errors).toEqual([]);
    await page.close();
  });
});
