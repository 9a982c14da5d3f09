import { dollars } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Badge, type Tone } from '../../ui/page.tsx';

const TONES: Readonly<Record<string, Tone>> = {
  succeeded: 'ok',
  completed: 'ok',
  processed: 'ok',
  failed: 'bad',
  error: 'bad',
  expired: 'bad',
  file_upload_failed: 'bad',
  batch_start_failed: 'bad',
  cancelled: 'quiet',
};

/** The status of a file, batch or job. */
export const Status = ({ status }: { status: string }) => (
  <Badge tone={TONES[status] ?? 'warn'}>{t(status.replaceAll('_', ' '))}</Badge>
);

/** Whether nothing changes any more. */
export const ended = (status: string): boolean => status in TONES;

/** Unix seconds as the API has them, as ISO 8601. */
export const iso = (seconds: number): string => new Date(seconds * 1000).toISOString();

/** Dollars of an amount that the API sends as a decimal; rounded to micro-dollars once. */
export const usd = (amount: number): string => dollars(Math.round(amount * 1_000_000));

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

/** `1.2 MiB` */
export function bytes(count: number): string {
  let [amount, unit] = [count, 0];
  while (amount >= 1024 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit += 1;
  }
  return `${amount.toLocaleString('en', { maximumFractionDigits: unit === 0 ? 0 : 1 })} ${UNITS[unit]}`;
}
