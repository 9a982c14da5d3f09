import { afterEach, it } from 'vitest';
import { runConnectionSequences } from '../../test/support/connection-sequences.ts';
import { closeAll } from '../../test/support/wire.ts';

afterEach(closeAll);

it('leaves no connection stuck in 10,000 sequences of sizes, pauses, aborts and pipelined bytes', async () => {
  await runConnectionSequences(10_000);
}, 600_000);
