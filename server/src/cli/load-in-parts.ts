import { readdirSync } from 'node:fs';
import { flushCompileCache, getCompileCacheDir } from 'node:module';

/** What a start reads, in an order in which each adds about as much. Code that is missing here is loaded with the rest. */
const PARTS: readonly (() => Promise<unknown>)[] = [
  () => import('fastify'),
  () => import('zod'),
  () => import('../providers/catalog.ts'),
  () => import('../resources/catalog.ts'),
  () => import('../llm/pipeline.ts'),
  () => import('../compose.ts'),
];
/** Files in a compile cache that an earlier start has filled; a start has about a thousand. */
const FILLED = 500;

/**
 * Loads the code of a server in parts. Node.js holds what it read of the compile cache until that is flushed. Of one load
 * that is 12 MB, and the allocator does not give them back; a part has 3 MB, and the next one takes their place. Does
 * nothing unless an earlier start filled the cache: of code that is compiled anew, a flush keeps the functions that have
 * run until then, and each later start would compile the others again.
 */
export async function loadInParts(): Promise<void> {
  const directory = getCompileCacheDir();
  if (directory === undefined || filesIn(directory) < FILLED) return;
  for (const load of PARTS) {
    await load();
    flushCompileCache();
  }
}

function filesIn(directory: string): number {
  try {
    return readdirSync(directory).length;
  } catch {
    return 0;
  }
}
