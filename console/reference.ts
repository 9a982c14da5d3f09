/**
 * Builds the page of the API reference that the server answers with at `/docs/`: `docs/index.html` and `docs/scalar.js`
 * in the folder of the console's build, with the guides beside it. A development dependency renders it, so that no server
 * carries its 25 MB.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import reference from '@scalar/fastify-api-reference';
import fastify from 'fastify';
import { TOP, writeGuides } from './guides.ts';

const sources = path.join(import.meta.dirname, 'src');
const source = (name: string): string => readFileSync(path.join(sources, name), 'utf8');

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
        authentication: { preferredSecurityScheme: 'apiKey' },
        customCss: source('docs/reference.css'),
      },
    });
    const html = (await app.inject('/docs/')).body
      .replace('<html>', '<html lang="en">')
      .replace('<div id="app">', `${TOP}\n    <script src="js/reference.js"></script>\n    <div id="app">`);
    const script = (await app.inject('/docs/js/scalar.js')).rawPayload;
    const folder = path.join(dist, 'docs');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'index.html'), html);
    writeFileSync(path.join(folder, 'scalar.js'), script);
    writeFileSync(path.join(folder, 'reference.js'), source('docs/reference.js'));
    writeFileSync(path.join(folder, 'guides.js'), source('app/theme-before-paint.js') + source('docs/guides.js'));
    writeFileSync(path.join(folder, 'guides.css'), source('docs/guides.css'));
    writeGuides(dist, path.join(import.meta.dirname, '..'));
    // 4 MB plain, 0.9 MB packed. The best quality would take seconds for a few percent.
    const quality = { params: { [constants.BROTLI_PARAM_QUALITY]: 5 } };
    writeFileSync(path.join(folder, 'scalar.js.br'), brotliCompressSync(script, quality));
    writeFileSync(path.join(folder, 'scalar.js.gz'), gzipSync(script));
  } finally {
    await app.close();
  }
}
