/**
 * A file of 1 GiB by each way an upload can take: `npm run test:uploads -- [--mib 1024]`. What arrives is what was sent,
 * and the server's memory grows by less than 64 MiB.
 */
import { parseArgs } from 'node:util';
import { startLargeUploads, type Way } from '../support/large-upload.ts';
import { killAll } from '../support/process.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({ options: { mib: { type: 'string', default: '1024' } } });
const bytes = Number(values.mib) * 1024 * 1024;
const LIMIT = 64 * 1024 * 1024;

process.on('exit', killAll);
const watch = watchdog('uploads');
let failed = false;
for (const way of ['purpose-first', 'file-first', 'kept'] as const satisfies readonly Way[]) {
  watch.phase(way, 600_000);
  // A process of its own for each: memory that one way has taken is not given back for the next.
  const uploads = await startLargeUploads();
  try {
    const { status, sent, arrived, growth, seconds } = await uploads.send(way, bytes);
    const ok = status === 200 && sent === arrived && (growth === null || growth < LIMIT);
    failed ||= !ok;
    const mib = growth === null ? 'unknown' : `${Math.round(growth / 1024 / 1024)} MiB`;
    process.stdout.write(
      `${ok ? 'ok  ' : 'FAIL'} ${way}: status ${status}, ${sent === arrived ? 'same' : 'other'} bytes, memory +${mib}, ${Math.round(bytes / 1024 / 1024 / seconds)} MiB/s\n`,
    );
  } finally {
    await uploads.stop();
  }
}
process.exit(failed ? 1 : 0);
