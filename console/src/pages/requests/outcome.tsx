import { t } from '../../app/i18n.ts';
import { Badge, type Tone } from '../../ui/page.tsx';

/** How a request can end, with its colour in charts. */
export const OUTCOMES = [
  { id: 'ok', label: 'Succeeded', tone: 'ok' },
  { id: 'refused', label: 'Refused', tone: 'warn' },
  { id: 'failed', label: 'Failed', tone: 'bad' },
  { id: 'aborted', label: 'Client left', tone: 'quiet' },
] as const satisfies readonly { id: string; label: string; tone: Tone }[];

/** The outcome in a word, with its status. */
export function Outcome({ outcome, status }: { outcome: string | null; status: number | null }) {
  const known = OUTCOMES.find(({ id }) => id === outcome);
  return (
    <Badge tone={known?.tone ?? 'quiet'}>
      {known ? t(known.label) : (outcome ?? '–')} {status ?? ''}
    </Badge>
  );
}
