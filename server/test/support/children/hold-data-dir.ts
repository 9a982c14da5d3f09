/** Holds the data directory given as the argument and says so on standard output. */
import { openDataDir } from '../../../src/store/disk/data-dir.ts';

const held = await openDataDir(process.argv[2] ?? '');
process.stdout.write(`${held.nodeId}\n`);
setInterval(() => undefined, 1_000);
