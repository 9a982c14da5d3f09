/** Judges what is large in a separate thread: see `work.ts` and `thread.ts`. */
import { parentPort } from 'node:worker_threads';
import { systemClock } from '../../../kernel/clock.ts';
import type { ToThread } from './messages.ts';
import { GuardrailWork } from './work.ts';

const work = new GuardrailWork((message, memory = []) => parentPort?.postMessage(message, [...memory]), systemClock);
parentPort?.on('message', (message: ToThread) => work.take(message));
