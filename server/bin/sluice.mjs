#!/usr/bin/env node
// Plain JavaScript on purpose: an old Node.js must be able to read this file to be refused in one clear line.
const major = Number(process.versions.node.split('.')[0]);
if (major < 24) {
  console.error(
    `Sluice needs Node.js 24 or newer; this is ${process.versions.node}. Run it through npm ("npm ci && npm start"), which brings its own Node.js where a platform package exists, or install Node.js 24.`,
  );
  process.exit(1);
}
if (process.argv[2] === 'serve') {
  const { withFewArenas } = await import('./few-arenas.mjs');
  withFewArenas();
}
// Types are stripped once and the result is kept: the next start is faster, and neither the process nor its threads
// hold the stripper in memory (about 12 MB each). Whatever is wrong with the directory only costs the benefit.
if (process.env.NODE_COMPILE_CACHE === undefined) {
  const { fileURLToPath } = await import('node:url');
  process.env.NODE_COMPILE_CACHE = fileURLToPath(new URL('../../node_modules/.cache/sluice', import.meta.url));
}
const { enableCompileCache, flushCompileCache } = await import('node:module');
enableCompileCache(process.env.NODE_COMPILE_CACHE);
// A process that is killed would keep nothing.
setTimeout(flushCompileCache, 15_000).unref();
// Set by `start.mjs` alone: commands and tests run the sources.
const built = process.argv[2] === 'serve' ? process.env.SLUICE_BUILT_MAIN : undefined;
if (built !== undefined) (await import('./source-names.mjs')).nameSources();
const { main } = await import(built ?? '../src/main.ts');
await main(process.argv.slice(2));
