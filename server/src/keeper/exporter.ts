/** The server's side of exports: asks the keeper for parts, and gives out the files that it has written. */
import { createReadStream } from 'node:fs';
import { open, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { Clock } from '../kernel/clock.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { ExportFile, ExportPart, ExportPlan, LogExporter } from '../telemetry/log-export.ts';
import type { LogSelection } from '../telemetry/log-query.ts';
import { UNFINISHED } from './catalog.ts';
import type { WrittenFile, WrittenPart } from './exports.ts';
import type { KeeperClient } from './keeper-client.ts';

export class KeeperExporter implements LogExporter {
  readonly #keeper: Pick<KeeperClient, 'ask'>;
  readonly #dir: string;
  readonly #clock: Clock;

  /** @param dir the keeper's own directory */
  constructor(keeper: Pick<KeeperClient, 'ask'>, dir: string, clock: Clock) {
    this.#keeper = keeper;
    this.#dir = dir;
    this.#clock = clock;
  }

  async part(selection: LogSelection, plan: ExportPlan): Promise<ExportPart> {
    const { rows, next, incomplete, ...file } = (await this.#keeper.ask('part', selection, plan)) as WrittenPart;
    return { rows, next, incomplete, ...fileOf(file) };
  }

  async join(parts: AsyncIterable<Readable>): Promise<ExportFile> {
    const paths: string[] = [];
    try {
      for await (const part of parts) {
        const path = join(this.#dir, uuidv7(this.#clock) + UNFINISHED);
        paths.push(path);
        const handle = await open(path, 'wx', 0o600);
        try {
          await handle.writeFile(part);
        } finally {
          await handle.close();
        }
      }
      return fileOf((await this.#keeper.ask('join', paths)) as WrittenFile);
    } finally {
      for (const path of paths) await unlink(path).catch(() => undefined);
    }
  }
}

function fileOf({ path, bytes, sha256 }: WrittenFile): ExportFile {
  return {
    bytes,
    sha256,
    read: () => createReadStream(path),
    // It is gone where the keeper was started anew.
    remove: () => unlink(path).catch(() => undefined),
  };
}
