/** Whether the engine of the log keeper is installed, without loading its 70 MB into the process that asks. */
import { createRequire } from 'node:module';

/** What is missing of it; null when all is there. */
export function missingEngine(platform: string = process.platform, arch: string = process.arch): string | null {
  const bindings = `@duckdb/node-bindings-${platform}-${arch}`;
  try {
    const api = createRequire(createRequire(import.meta.url).resolve('@duckdb/node-api'));
    const loader = createRequire(api.resolve('@duckdb/node-bindings'));
    const found = [bindings, `${bindings}-musl`].some((name) => {
      try {
        return loader.resolve(`${name}/duckdb.node`) !== '';
      } catch {
        return false;
      }
    });
    return found ? null : `the package ${bindings} is not installed`;
  } catch {
    return 'the package @duckdb/node-api is not installed';
  }
}
