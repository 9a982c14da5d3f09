import type { Clock } from '../kernel/clock.ts';
import { type Deadline, deadlinesOf } from '../kernel/deadlines.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { WireControl, WireHandler, WireRequest } from '../kernel/wire.ts';
import type { LocalHandler } from '../providers/provider.ts';

/** A call that is answered in the process: its head has as long to come as that of a call over the wire. */
export function callLocal(
  local: LocalHandler,
  request: WireRequest,
  handler: WireHandler,
  { clock, headersMs }: { clock: Clock; headersMs: number },
): WireControl {
  let deadline: Deadline | null = null;
  const control = local(
    request,
    {
      onHead(status, headers, own) {
        deadline?.cancel();
        handler.onHead(status, headers, own);
      },
      onData: (chunk) => handler.onData(chunk),
      onEnd: () => handler.onEnd(),
      onError(error) {
        deadline?.cancel();
        handler.onError(error);
      },
    },
    clock,
  );
  deadline = deadlinesOf(clock).start(headersMs, () => {
    control.abort();
    const message = `The provider did not start to answer within ${headersMs} ms.`;
    handler.onError(new SluiceError('timeout', message, { reason: 'first_token_timeout' }));
  });
  return {
    pause: () => control.pause(),
    resume: () => control.resume(),
    abort() {
      deadline?.cancel();
      control.abort();
    },
  };
}
