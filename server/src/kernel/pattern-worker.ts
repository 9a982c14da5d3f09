/** Matches in a separate thread what would hold the event loop up: see `pattern-thread.ts`. */
import { parentPort } from 'node:worker_threads';
import { RE2JS } from 're2js';
import { Lru } from './lru.ts';

const compiled = new Lru<string, RE2JS>({ maxEntries: 100 });

parentPort?.on('message', ({ pattern, text }: { pattern: string; text: string }) => {
  let expression = compiled.get(pattern);
  if (expression === undefined) {
    expression = RE2JS.compile(pattern);
    compiled.set(pattern, expression);
  }
  parentPort?.postMessage({ found: expression.test(text) });
});
