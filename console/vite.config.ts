import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, gzipSync } from 'node:zlib';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';
import { writeReference } from './reference.ts';

/** Writes `.br` and `.gz` beside each text asset, so that the server never compresses while it serves. */
function precompress(): Plugin {
  return {
    name: 'precompress',
    apply: 'build',
    writeBundle({ dir = '' }) {
      const assets = path.join(dir, 'assets');
      for (const name of readdirSync(assets).filter((file) => /\.(js|css|svg)$/.test(file))) {
        const content = readFileSync(path.join(assets, name));
        writeFileSync(path.join(assets, `${name}.br`), brotliCompressSync(content));
        writeFileSync(path.join(assets, `${name}.gz`), gzipSync(content));
      }
    },
  };
}

/** Writes the page of the API reference beside the console. */
function apiReference(): Plugin {
  return {
    name: 'api-reference',
    apply: 'build',
    writeBundle: ({ dir = '' }) => writeReference(dir),
  };
}

/**
 * Sets the chosen theme before the first paint. A module runs after it, and the content security policy allows no inline
 * script, so this is a classic script in a file.
 */
function themeBeforePaint(): Plugin {
  const source = readFileSync(path.join(import.meta.dirname, 'src', 'app', 'theme-before-paint.js'), 'utf8');
  const name = `theme-${createHash('sha256').update(source).digest('hex').slice(0, 8)}.js`;
  return {
    name: 'theme-before-paint',
    apply: 'build',
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: `assets/${name}`, source });
    },
    transformIndexHtml: () => [
      { tag: 'script', attrs: { src: `/console/assets/${name}` }, injectTo: 'head-prepend' as const },
    ],
  };
}

export default defineConfig({
  root: import.meta.dirname,
  base: '/console/',
  plugins: [react(), themeBeforePaint(), precompress(), apiReference()],
  build: {
    target: 'es2023',
    // The content security policy allows no inline data but images, and a small file costs nothing here.
    assetsInlineLimit: 0,
    modulePreload: false,
    reportCompressedSize: false,
    emptyOutDir: true,
  },
  server: {
    // `npm run dev -w console` beside a running gateway, whose SLUICE_PUBLIC_URL must then be this address.
    proxy: { '/console/api': 'http://127.0.0.1:8787', '/v1': 'http://127.0.0.1:8787', '/v2': 'http://127.0.0.1:8787' },
  },
});
