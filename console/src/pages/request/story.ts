/** What happened to a request, in sentences made of its decision alone. Pure, so that tests read it line by line. */
import type { Operations } from '../../../types/api.ts';
import { duration } from '../../app/format.ts';
import { plural, t } from '../../app/i18n.ts';

export type Decision = Operations['GET /v1/logs/{logId}/decision']['answer'];
type Attempt = Decision['attempts'][number];

/** Names of what the decision knows by id. */
export interface Names {
  readonly key?: string | null;
}

/** Sentences, in the order of what happened. */
export function story(decision: Decision): string[] {
  return [
    asked(decision),
    ...cached(decision),
    ...refused(decision),
    ...tried(decision.attempts),
    ...decision.route.flatMap(({ stopped }) => (stopped ? [t('The fallback stopped: {stopped}.', { stopped })] : [])),
    ...waited(decision.attempts),
    ...changed(decision),
    ended(decision),
  ];
}

function asked({ model, config, operation }: Decision): string {
  const what = model.requested ?? operation;
  return config?.slug
    ? t('Asked for {what} with the config {config}.', { what, config: config.slug })
    : t('Asked for {what}.', { what });
}

const cached = ({ cache }: Decision): string[] =>
  cache.status === 'HIT' || cache.status === 'SEMANTIC HIT' ? [t('The cache answered; no provider was asked.')] : [];

function refused({ rules, guardrails }: Decision): string[] {
  const limits = rules.filter(({ outcome }) => outcome === 'refused').length;
  const denied = guardrails.verdicts.filter((one) => one.denied === true || one.verdict === 'denied').length;
  return [
    ...(limits > 0 ? [plural(limits, { one: '{n} limit refused it.', other: '{n} limits refused it.' })] : []),
    ...(denied > 0 ? [plural(denied, { one: '{n} guardrail denied it.', other: '{n} guardrails denied it.' })] : []),
  ];
}

/** One sentence for attempts in a row at the same target with the same end. */
function tried(attempts: readonly Attempt[]): string[] {
  const runs: { attempt: Attempt; times: number }[] = [];
  for (const attempt of attempts) {
    const last = runs.at(-1);
    if (last && last.attempt.target === attempt.target && last.attempt.status === attempt.status) last.times += 1;
    else runs.push({ attempt, times: 1 });
  }
  return runs.map(({ attempt, times }) => {
    const where = `${attempt.provider} (${attempt.target})`;
    if (attempt.cause === null)
      return t('{where} answered with {status}.', { where, status: String(attempt.status ?? '–') });
    const why = attempt.status === null ? sentence(attempt.cause.message) : String(attempt.status);
    return times === 1
      ? t('{where} failed: {why}.', { where, why })
      : t('{where} failed {times} times: {why}.', { where, times, why });
  });
}

const sentence = (text: string): string => text.replace(/\.$/, '');

/** What a wait between two attempts is at least, in milliseconds. */
const WAIT = 20;

function waited(attempts: readonly Attempt[]): string[] {
  let sum = 0;
  for (const [index, attempt] of attempts.entries()) {
    const former = attempts[index - 1];
    if (!former || former.began_ms === null || attempt.began_ms === null) continue;
    const gap = attempt.began_ms - former.began_ms - former.duration_ms;
    if (gap >= WAIT) sum += gap;
  }
  return sum === 0 ? [] : [t('{time} were spent waiting between tries.', { time: duration(sum) })];
}

function changed({ fields_changed, converted_to }: Decision): string[] {
  const names = [
    ...(fields_changed?.overridden ?? []),
    ...(fields_changed?.added ?? []),
    ...(fields_changed?.dropped ?? []),
  ];
  return [
    ...(names.length > 0 ? [t('Changed on the way: {names}.', { names: names.join(', ') })] : []),
    ...(converted_to ? [t('The body was converted to {shape}.', { shape: converted_to })] : []),
  ];
}

function ended({ outcome, dry_run }: Decision): string {
  if (dry_run) return t('This was a dry run: no provider was called.');
  const time = duration(outcome.latency_ms);
  switch (outcome.outcome) {
    case 'ok':
      return t('The answer was complete after {time}.', { time });
    case 'refused':
      return t('Sluice refused it with {status} after {time}.', { status: String(outcome.status), time });
    case 'aborted':
      return t('The client left after {time}.', { time });
    default:
      return t('It failed with {status} after {time}.', { status: String(outcome.status), time });
  }
}
