import type { FineTuningCheckpoint, FineTuningJob } from '../../../types/api.ts';
import { count } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import type { Bar, Series } from '../../ui/chart.tsx';
import { usd } from '../train/words.tsx';

/** What jobs that Sluice runs say beside the common fields. */
export type Job = FineTuningJob & {
  suffix?: string | null;
  provider_slug?: string;
  cost?: { usd: number; basis: string; usd_per_million_tokens: number } | null;
};

/** The name that calls use for a model of the job's account. */
export const callName = (job: Job, model: string): string =>
  job.provider_slug === undefined ? model : `@${job.provider_slug}/${model}`;

export const costOf = (job: Job): string => (job.cost ? usd(job.cost.usd) : '–');
export const tokensOf = (job: Job): string => (job.trained_tokens === null ? '–' : count(job.trained_tokens));

/** Time from the start to the end, or until now. */
export function elapsed(job: Job): string {
  const seconds = Math.max(0, Math.round((job.finished_at ?? Date.now() / 1000) - job.created_at));
  if (seconds < 120) return t('{n} s', { n: seconds });
  return seconds < 7200 ? t('{n} min', { n: Math.round(seconds / 60) }) : t('{n} h', { n: Math.round(seconds / 3600) });
}

type Metric = keyof FineTuningCheckpoint['metrics'];

/** The numbers of checkpoints as lines; `prefix` keeps those of two jobs apart. */
export function curveOf(
  jobs: readonly { readonly prefix: string; readonly checkpoints: readonly FineTuningCheckpoint[] }[],
  metrics: readonly (readonly [Metric, string])[],
): { series: Series[]; points: Bar[] } {
  const byStep = new Map<number, Record<string, number>>();
  const series: Series[] = [];
  for (const { prefix, checkpoints } of jobs) {
    for (const [metric, label] of metrics) {
      const id = `${prefix}${metric}`;
      let found = false;
      for (const { step_number: step, metrics: own } of checkpoints) {
        const value = own[metric];
        if (value === undefined) continue;
        found = true;
        byStep.set(step, { ...byStep.get(step), [id]: value });
      }
      if (found) series.push({ id, label: `${prefix}${label}`, tone: `c${series.length + 1}` });
    }
  }
  const points = [...byStep].sort(([a], [b]) => a - b);
  return {
    series,
    points: points.map(([step, values]) => ({ at: String(step), name: t('step {step}', { step }), values })),
  };
}

export const LOSSES = [
  ['train_loss', t('training loss')],
  ['valid_loss', t('validation loss')],
] as const;
export const ACCURACIES = [
  ['train_mean_token_accuracy', t('training accuracy')],
  ['valid_mean_token_accuracy', t('validation accuracy')],
] as const;
