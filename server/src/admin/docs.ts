/**
 * The API reference: `/openapi.json`, and a page at `/docs/` that needs nothing from outside this server. Beside it are the
 * guides, at `/docs/guides/`. Both are built with the console (`console/reference.ts`): its library has 25 MB, of which a server needs one script.
 */
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { JsonObject } from '../kernel/json.ts';
import { sendBuilt } from './built-files.ts';
import { CONSOLE_DIST } from './console-dist.ts';

/** Every path served here, for the route inventory. */
export const DOCS_ROUTES = [
  ['GET', '/openapi.json'],
  ['GET', '/docs'],
  ['GET', '/docs/'],
  ['GET', '/docs/guides'],
  ['GET', '/docs/guides/'],
  ['GET', '/docs/guides/:name'],
  ['GET', '/docs/js/:file'],
] as const;

/** What the pages load. */
const FILES: readonly string[] = ['scalar.js', 'reference.js', 'guides.js', 'guides.css'];

const NOT_BUILT = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Sluice API</title>
<h1>The API reference is not built</h1>
<p>The document itself is at <a href="/openapi.json">/openapi.json</a>. To build the page, run
<code>npm ci &amp;&amp; npm run console</code> in the Sluice folder and reload it.</p></html>`;

const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
} as const;

/**
 * Mounts the reference. The document is public: it is the same for every installation of a version. It is made when
 * first asked for. The page is in the folder `docs` of `dist`; where it is missing, `/docs/` says how to build it.
 */
export function registerDocs(
  app: FastifyInstance,
  document: () => JsonObject | Promise<JsonObject>,
  dist = CONSOLE_DIST,
): void {
  let json: string | null = null;
  const folder = path.join(dist, 'docs');
  const route = (url: string, handler: (request: FastifyRequest, reply: FastifyReply) => unknown) =>
    app.route({
      method: ['GET', 'HEAD'],
      url,
      exposeHeadRoute: false,
      handler: async (request, reply) => handler(request, reply.headers(SECURITY_HEADERS)),
    });

  route('/openapi.json', async (_request, reply) => {
    json ??= JSON.stringify(await document());
    return reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(json);
  });
  route('/docs', (_request, reply) => reply.redirect('/docs/', 302));
  route('/docs/', async (_request, reply) => {
    const file = path.join(folder, 'index.html');
    const built = existsSync(file);
    const html = built ? await readFile(file, 'utf8') : NOT_BUILT;
    return reply
      .code(built ? 200 : 503)
      .headers({ 'content-security-policy': policy(html), 'cache-control': 'no-cache' })
      .type('text/html; charset=utf-8')
      .send(html);
  });
  route('/docs/js/:file', async (request, reply) => {
    const { file } = request.params as { file: string };
    if (!FILES.includes(file) || !existsSync(path.join(folder, file))) return reply.callNotFound();
    // Only the large one changes with its library alone.
    reply.header('cache-control', file === 'scalar.js' ? 'public, max-age=86400' : 'no-cache');
    return sendBuilt(request, reply, folder, file);
  });
  const guide = async (request: FastifyRequest, reply: FastifyReply, name: string) => {
    const built = path.join(folder, 'guides');
    if (!/^[a-z0-9-]+$/.test(name) || !existsSync(path.join(built, `${name}.html`))) return reply.callNotFound();
    reply.headers({ 'content-security-policy': GUIDE_POLICY, 'cache-control': 'no-cache' });
    return sendBuilt(request, reply, built, `${name}.html`);
  };
  route('/docs/guides', (_request, reply) => reply.redirect('/docs/guides/', 302));
  route('/docs/guides/', (request, reply) => guide(request, reply, 'index'));
  route('/docs/guides/:name', (request, reply) => guide(request, reply, (request.params as { name: string }).name));
}

/** The guides have their scripts and styles in files. */
const GUIDE_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/** Only our own script and the page's inline one, named by its hash; nothing is fetched from elsewhere. */
function policy(html: string): string {
  const inline = [...html.matchAll(/<script(?![^>]*\bsrc=)[^>]*>([\s\S]*?)<\/script>/g)].map((match) => {
    const digest = createHash('sha256')
      .update(match[1] ?? '')
      .digest('base64');
    return `'sha256-${digest}'`;
  });
  return [
    "default-src 'none'",
    `script-src 'self' ${inline.join(' ')}`.trim(),
    // The reference builds its styles at run time.
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "font-src 'self' data:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
}
