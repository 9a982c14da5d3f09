import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import fastify, { type FastifyInstance } from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { writeReference } from '../../../console/reference.ts';
import { DOCS_ROUTES, registerDocs } from '../../src/admin/docs.ts';
import { buildOpenApi } from '../../src/admin/openapi.ts';
import { ACTIONS } from '../../src/resources/catalog.ts';
import { type Launched, launchBrowser } from '../support/browser.ts';

const dist = mkdtempSync(join(tmpdir(), 'sluice-docs-'));
let app: FastifyInstance;
let origin = '';
let browser: Launched;

beforeAll(async () => {
  await writeReference(dist);
  app = fastify({ exposeHeadRoutes: false });
  registerDocs(app, async () => buildOpenApi(ACTIONS, '1.2.3'), dist);
  await app.listen({ host: '127.0.0.1', port: 0 });
  origin = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`;
  browser = await launchBrowser();
});

afterAll(async () => {
  if (browser?.context) await browser.close();
  await app?.close();
  rmSync(dist, { recursive: true, force: true });
});

describe('the API reference', () => {
  it('serves the document and the page without a credential', async () => {
    for (const [, path] of DOCS_ROUTES) {
      const answer = await fetch(`${origin}${path.replace(':name', 'limits').replace(':file', 'scalar.js')}`);
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

  it('sends its script packed to clients that take that, and plain to others', async () => {
    const script = async (encoding: string) => {
      const answer = await app.inject({ url: '/docs/js/scalar.js', headers: { 'accept-encoding': encoding } });
      return [answer.statusCode, answer.headers['content-encoding'], answer.headers['content-type'], answer.rawPayload];
    };
    const type = 'application/javascript; charset=utf-8';
    const plain = await script('identity');
    expect(plain.slice(0, 3)).toEqual([200, undefined, type]);
    for (const [asked, given, unpack] of [
      ['gzip, br', 'br', brotliDecompressSync],
      ['gzip, br;q=0', 'gzip', gunzipSync],
    ] as const) {
      const packed = await script(asked);
      expect(packed.slice(0, 3)).toEqual([200, given, type]);
      expect(unpack(packed[3] as Buffer).equals(plain[3] as Buffer), asked).toBe(true);
    }
  });

  it('names the document and how to build the page where only production dependencies are installed', async () => {
    const bare = fastify({ exposeHeadRoutes: false });
    registerDocs(bare, async () => buildOpenApi(ACTIONS, '1.2.3'), join(dist, 'nowhere'));
    const page = await bare.inject('/docs/');
    expect([page.statusCode, page.headers['content-type']]).toEqual([503, 'text/html; charset=utf-8']);
    expect(page.body).toContain('<a href="/openapi.json">');
    expect(page.body).toContain('npm run console');
    for (const path of ['/docs/js/scalar.js', '/docs/guides/', '/docs/guides/limits'])
      expect((await bare.inject(path)).statusCode, path).toBe(404);
    expect((await bare.inject('/openapi.json')).statusCode).toBe(200);
    await bare.close();
  });

  it('serves the guides, whose links lead to guides and headings that exist, and no other file', async () => {
    const pages = new Map<string, string>();
    const load = async (path: string) => {
      const page = await app.inject(path);
      expect([path, page.statusCode]).toEqual([path, 200]);
      expect(page.headers['content-security-policy']).not.toContain('unsafe');
      pages.set(path, page.body);
    };
    await load('/docs/guides/');
    const listed = [...(pages.get('/docs/guides/') ?? '').matchAll(/<li data-words[^>]*><a href="([^"]+)"/g)];
    for (const [, path = ''] of listed) await load(path);
    for (const file of readdirSync(new URL('../../../docs/guides', import.meta.url)))
      expect([...pages.keys()]).toContain(`/docs/guides/${file.replace('.md', '')}`);
    for (const [path, html] of pages) {
      for (const [, link = ''] of html.matchAll(/href="([/#][^"]*)"/g)) {
        const [target = '', anchor] = link.split('#');
        const page = pages.get(target === '' ? path : target);
        if (target.startsWith('/docs/guides/')) expect(page, `${path} leads to ${link}`).toBeDefined();
        if (page !== undefined && anchor !== undefined) expect(page, link).toContain(`id="${anchor}"`);
      }
    }
    for (const path of ['/docs/guides/none', '/docs/guides/..%2Findex', '/docs/guides/Limits', '/docs/js/index.html'])
      expect([path, (await app.inject(path)).statusCode]).toEqual([path, 404]);
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
