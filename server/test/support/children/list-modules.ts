/** Loaded before a server (`--import`): writes what was loaded from files into the file LIST_MODULES when the server ends. */
import { writeFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { isMainThread } from 'node:worker_threads';

const file = process.env.LIST_MODULES;
if (isMainThread && file !== undefined) {
  const loaded: string[] = [];
  registerHooks({
    load(url, context, next) {
      if (url.startsWith('file:')) loaded.push(url);
      return next(url, context);
    },
  });
  process.on('exit', () => writeFileSync(file, JSON.stringify(loaded)));
}
