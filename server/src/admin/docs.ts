/** The API reference: `/openapi.json`, and a page at `/docs/` that needs nothing from outside this server. */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants } from 'node:zlib';
import fastify, { type FastifyInstance, type FastifyReply } from 'fastify';
import type { JsonObject } from '../kernel/json.ts';

/** Every path served here, for the route inventory. */
export const DOCS_ROUTES = [
  ['GET', '/openapi.json'],
  ['GET', '/docs'],
  ['GET', '/docs/'],
  ['GET', '/docs/js/scalar.js'],
] as const;

interface Page {
  readonly html: string;
  readonly csp: string;
  readonly script: Buffer;
  /** The script is 4 MB plain and 0.9 MB packed. */
  readonly packed: Buffer;
}

const SECURITY_HEADERS = {
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
  'referrer-policy': 'no-referrer',
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-resource-policy': 'same-origin',
  'permissions-policy': 'camera=(), geolocation=(), microphone=()',
} as const;

/**
 * Mounts the reference. The document is public: it is the same for every installation of a version. It is built when
 * first asked for.
 */
export function registerDocs(app: FastifyInstance, document: () => JsonObject): void {
  let json: string | null = null;
  let page: Promise<Page> | null = null;
  // The reference is loaded when somebody looks at it: it would cost every start 4 MB and its parse time.
  const load = () => {
    page ??= render().catch((error: unknown) => {
      page = null;
      throw error;
    });
    return page;
  };
  const answer = (reply: FastifyReply) => reply.headers(SECURITY_HEADERS);
  const route = (url: string, handler: (reply: FastifyReply, encodings: string) => unknown) =>
    app.route({
      method: ['GET', 'HEAD'],
      url,
      exposeHeadRoute: false,
      handler: async (request, reply) => handler(answer(reply), String(request.headers['accept-encoding'] ?? '')),
    });

  route('/openapi.json', (reply) => {
    json ??= JSON.stringify(document());
    return reply.header('cache-control', 'no-cache').type('application/json; charset=utf-8').send(json);
  });
  route('/docs', (reply) => reply.redirect('/docs/', 302));
  route('/docs/', async (reply) => {
    const { html, csp } = await load();
    return reply
      .headers({ 'content-security-policy': csp, 'cache-control': 'no-cache' })
      .type('text/html; charset=utf-8')
      .send(html);
  });
  route('/docs/js/scalar.js', async (reply, encodings) => {
    const { script, packed } = await load();
    reply.headers({ 'cache-control': 'public, max-age=86400', vary: 'accept-encoding' });
    reply.type('text/javascript; charset=utf-8');
    return /\bbr\b/.test(encodings) ? reply.header('content-encoding', 'br').send(packed) : reply.send(script);
  });
}

/** Lets the library render in a server of its own that never listens, and takes page and script from it. */
async function render(): Promise<Page> {
  const { default: reference } = await import('@scalar/fastify-api-reference');
  const app = fastify({ logger: false });
  try {
    await app.register(reference, {
      routePrefix: '/docs',
      configuration: {
        url: '/openapi.json',
        pageTitle: 'Sluice API',
        telemetry: false,
        withDefaultFonts: false,
        hideClientButton: true,
        showDeveloperTools: 'never',
        documentDownloadType: 'direct',
        agent: { disabled: true },
        mcp: { disabled: true },
      },
    });
    const html = (await app.inject('/docs/')).body;
    const script = (await app.inject('/docs/js/scalar.js')).rawPayload;
    const packed = await promisify(brotliCompress)(script, { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } });
    return { html, csp: policy(html), script, packed };
  } finally {
    await app.close();
  }
}

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
