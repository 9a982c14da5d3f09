#!/usr/bin/env node
// Plain JavaScript on purpose: an old Node.js must be able to read this file to be refused in one clear line.
const major = Number(process.versions.node.split('.')[0]);
if (major < 24) {
  console.error(
    `Sluice needs Node.js 24 or newer; this is ${process.versions.node}. Run it through npm ("npm ci && npm start"), which brings its own Node.js where a platform package exists, or install Node.js 24.`,
  );
  process.exit(1);
}
const { main } = await import('../src/main.ts');
await main(process.argv.slice(2));
