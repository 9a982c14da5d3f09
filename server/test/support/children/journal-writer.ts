/**
 * Appends to a journal and ships it as fast as it can until it is killed. Arguments: journal directory, sink file, file
 * for acknowledgements (one number per record whose callback ran), first number.
 */
import { openSync, writeSync } from 'node:fs';
import { systemClock } from '../../../src/kernel/clock.ts';
import { silentLog } from '../../../src/kernel/log.ts';
import { openJournal } from '../../../src/store/disk/journal.ts';
import { startShipper } from '../../../src/store/disk/shipper.ts';
import { RecordingSink } from '../log-sink.ts';

const [dir = '', sinkFile = '', ackFile = '', first = '0'] = process.argv.slice(2);
const acknowledgements = openSync(ackFile, 'a');
const sink = new RecordingSink(sinkFile);
const base = { dir, clock: systemClock, log: silentLog };
const journal = await openJournal({ ...base, segmentBytes: 200_000, syncEveryMs: 5 });
startShipper({ ...base, journal, sink, everyMs: 2, batch: 100 });
let calls = 0;
sink.before = () => {
  if (++calls % 50 < 5) throw new Error('outage');
};

let next = Number(first);
const padding = 'x'.repeat(800);
function turn(): void {
  const group: number[] = [];
  for (let i = 0; i < 10; i++) {
    const number = next++;
    journal.append(JSON.stringify({ number, padding }), () => {
      group.push(number);
      if (group.length === 10) writeSync(acknowledgements, `${group.join('\n')}\n`);
    });
  }
  // Bounds the run's size; the shipper may catch up meanwhile.
  if (journal.depth() < 4_000_000) setImmediate(turn);
  else setTimeout(turn, 5);
}
turn();
