/**
 * Builds the page of the API reference that the server answers with at `/docs/`: `docs/index.html` and `docs/scalar.js`
 * in the folder of the console's build. A development dependency renders it, so that no server carries its 25 MB.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import reference from '@scalar/fastify-api-reference';
import fastify from 'fastify';

/** Lets the library render in a server that never listens, and writes page and script below `dist`, the script packed too. */
export async function writeReference(dist: string): Promise<void> {
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
    const folder = path.join(dist, 'docs');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'index.html'), html);
    writeFileSync(path.join(folder, 'scalar.js'), script);
    // 4 MB plain, 0.9 MB packed. The best quality would take seconds for a few percent.
    const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };
    writeFileSync(path.join(folder, 'scalar.js.br'), brotliCompressSync(script, quality));
    writeFileSync(path.join(folder, 'scalar.js.gz'), gzipSync(script));
  } finally {
    await app.close();
  }
}
