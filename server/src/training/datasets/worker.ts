/** The worker thread of one scan: bytes in, counters and converted bytes out, the report at the end. */
import { parentPort, workerData } from 'node:worker_threads';
import { loadTokenizer } from '../../operations/tokens.ts';
import type { Input, Output, WorkerOptions } from './protocol.ts';
import { DatasetScan } from './scan.ts';

// A bad row is an ordinary thing here: a stack for each of a million would be the largest cost.
Error.stackTraceLimit = 0;

const { scan: options } = workerData as WorkerOptions;
const scan = new DatasetScan(options, options.countTokens ? await loadTokenizer() : null);

parentPort?.on('message', (input: Input) => {
  if (input === null) scan.end();
  else scan.push(Buffer.from(input.buffer, input.byteOffset, input.byteLength));
  const taken = scan.take();
  // A buffer from the pool must not be transferred: its memory is shared.
  const bytes = taken === null ? null : new Uint8Array(taken);
  const memory = input?.buffer ?? null;
  const report = input === null ? scan.report() : null;
  const output: Output = { memory, rows: scan.rows, done: scan.done, bytes, report };
  parentPort?.postMessage(
    output,
    [memory, bytes?.buffer ?? null].filter((one) => one !== null),
  );
});
