import type { Guardrail, Outcome } from '../../guardrails/guardrail.ts';
import { runGuardrails } from '../../guardrails/run.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { Exchange } from '../exchange.ts';
import {
  givesUnseenFiles,
  type InputView,
  inputView,
  mustSee,
  notChanged,
  notCovered,
  readsTexts,
  unseenBy,
  withoutTexts,
} from '../guard/coverage.ts';
import { Guarded, withoutChange } from '../guard/guarded.ts';
import { insists, outputCovered } from '../guard/output.ts';
import type { GuardPlan } from '../guard/plan.ts';
import { GuardedRequest } from '../guard/subject.ts';
import { ReplacementError, type SaidPart } from '../guard/texts.ts';

/**
 * Judges the request before it is sent (api §7, §15.5: after limits and budgets). A guardrail that denies or redacts and
 * cannot look at what the request says, or what its answer will say, refuses it; so does a change that cannot be sent.
 */
export function guard(x: Exchange): void | Promise<void> {
  const plan = x.plan?.guard;
  if (plan == null) return;
  const guarded = new Guarded(x, plan);
  x.guard = guarded;
  const view = inputView(x);
  try {
    coverOutput(x, plan);
    const list = plan.input.length === 0 ? plan.input : judging(plan.input, view, x);
    if (list.length === 0) return;
    const request = new GuardedRequest(
      x,
      view,
      list.some(({ actions }) => actions.async),
    );
    readable(list, request);
    if (x.dryRun) return;
    const subject = request.view('all', null);
    const outcome = runGuardrails(list, subject, {
      outside: guarded.outside,
      clock: x.services.clock,
      onAsync: guarded.onAsync,
      view: request.view,
    });
    if (!(outcome instanceof Promise)) return take(x, guarded, request, outcome);
    return new Promise<Outcome>((resolve, reject) => {
      const cancel = (error: SluiceError) => {
        guarded.end();
        reject(error);
      };
      x.cancel = cancel;
      if (x.clientGone) cancel(new SluiceError('client_closed', 'The client closed the connection.'));
      outcome.then(resolve, reject);
    }).then(
      (done) => {
        x.cancel = null;
        take(x, guarded, request, done);
      },
      (error: unknown) => {
        x.cancel = null;
        refuse(x, error);
      },
    );
  } catch (error) {
    refuse(x, error);
  }
}

/** Guardrails that judge this request, with the checks that can. */
function judging(list: readonly Guardrail[], view: InputView, x: Exchange): readonly Guardrail[] {
  if (view === 'texts') return list;
  for (const guardrail of list) {
    const unseen = unseenBy(guardrail, view, x);
    if (unseen !== null) throw notCovered(guardrail, unseen);
  }
  return list.map((guardrail) => (readsTexts(guardrail, 'input') ? withoutTexts(guardrail) : guardrail));
}

function coverOutput(x: Exchange, { output }: GuardPlan): void {
  if (output.length === 0) return;
  const stream = x.stream || asksForStream(x);
  if (x.operation.family === 'J' ? !givesUnseenFiles(x) : outputCovered(x.operation, stream)) return;
  for (const guardrail of output) {
    if (insists(guardrail) && readsTexts(guardrail, 'output')) {
      throw notCovered(guardrail, `what ${x.operation.id} answers${stream ? ' as a stream' : ''}`);
    }
  }
}

/** Places whose text cannot be seen (token ids, documents in a binary form) are refused by who denies or redacts. */
function readable(list: readonly Guardrail[], request: GuardedRequest): void {
  for (const guardrail of list) {
    if (!mustSee(guardrail) || !readsTexts(guardrail, 'input')) continue;
    const { texts } = request.view(guardrail.actions.messages, null);
    for (const part of texts as readonly SaidPart[]) {
      if (part.unreadable !== undefined) throw notCovered(guardrail, `${part.path} (${part.unreadable})`);
    }
  }
}

/** A stored response is asked for as a stream by its address. */
function asksForStream({ operation, request }: Exchange): boolean {
  if (operation.id !== 'response') return false;
  return new URLSearchParams((request.url ?? '').split('?')[1] ?? '').get('stream') === 'true';
}

function take(x: Exchange, guarded: Guarded, request: GuardedRequest, outcome: Outcome): void {
  guarded.before = outcome.results;
  guarded.failed = outcome.failed;
  guarded.soft = outcome.soft;
  try {
    if (outcome.denied) throw new SluiceError('hooks_failed', 'The guardrail checks failed; see hook_results.');
    if (outcome.replaced !== undefined || outcome.replacements.length > 0) request.apply(outcome);
  } catch (error) {
    if (!(error instanceof ReplacementError)) refuse(x, error);
    guarded.before = withoutChange(outcome.results, error.message);
    refuse(x, notChanged(outcome.results, error.message));
  }
}

/** Only accepted requests count in rate limits (api §15.5), and those came first. */
function refuse(x: Exchange, error: unknown): never {
  if (x.reservation !== null) x.quota = x.reservation.release();
  x.reservation = null;
  throw error;
}
