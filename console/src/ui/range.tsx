import { useId, useState } from 'react';
import { zoneName } from '../app/format.ts';
import { t } from '../app/i18n.ts';
import { type Range, useUrl, useZone } from '../shell/url-state.ts';
import { Dialog } from './dialog.tsx';

const NAMES: readonly (readonly [string, string])[] = [
  ['15m', 'Last 15 minutes'],
  ['1h', 'Last hour'],
  ['24h', 'Last 24 hours'],
  ['7d', 'Last 7 days'],
  ['30d', 'Last 30 days'],
  ['month', 'This month (UTC)'],
];

/** The range of time and the zone of a page, both in the address. */
export function RangePicker({ range }: { range: Range }) {
  const { set } = useUrl();
  const zone = useZone();
  const [custom, setCustom] = useState(false);
  const label = useId();
  return (
    <span className="row wrap" data-key="range">
      <span className="visually-hidden" id={label}>
        {t('Range of time')}
      </span>
      <select
        aria-labelledby={label}
        value={range.name}
        onChange={({ target: { value } }) => {
          if (value === 'custom' || value === 'other') setCustom(true);
          else set({ range: value, from: null, to: null });
        }}
      >
        {NAMES.map(([id, name]) => (
          <option key={id} value={id}>
            {t(name)}
          </option>
        ))}
        {range.name === 'custom' && <option value="custom">{t('Chosen range')}</option>}
        <option value="other">{t('Choose a range…')}</option>
      </select>
      <button
        type="button"
        className="button small"
        aria-pressed={zone === 'utc'}
        title={t('Times are in {zone}', { zone: zoneName(zone) })}
        onClick={() => set({ zone: zone === 'utc' ? null : 'utc' })}
      >
        UTC
      </button>
      {custom && <Custom range={range} onClose={() => setCustom(false)} />}
    </span>
  );
}

function Custom({ range, onClose }: { range: Range; onClose: () => void }) {
  const { set } = useUrl();
  const zone = useZone();
  const own = (iso: string) => {
    const at = new Date(iso);
    const shifted = zone === 'utc' ? at : new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
    return shifted.toISOString().slice(0, 16);
  };
  const [from, setFrom] = useState(own(range.from));
  const [to, setTo] = useState(own(range.to));
  const iso = (text: string) => new Date(zone === 'utc' ? `${text}Z` : text).toISOString();
  const wrong = from >= to;
  return (
    <Dialog title={t('Choose a range')} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (wrong) return;
          set({ from: iso(from), to: iso(to), range: null });
          onClose();
        }}
      >
        <div className="pair">
          <label className="field">
            <span>{t('From')}</span>
            <input type="datetime-local" required value={from} onChange={(event) => setFrom(event.target.value)} />
          </label>
          <label className="field">
            <span>{t('Until')}</span>
            <input type="datetime-local" required value={to} onChange={(event) => setTo(event.target.value)} />
          </label>
        </div>
        <p className={wrong ? 'fault' : 'muted'} role="status">
          {wrong ? t('The end lies before the begin.') : t('Times are in {zone}', { zone: zoneName(zone) })}
        </p>
        <div className="row">
          <button type="submit" className="button primary">
            {t('Apply')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
        </div>
      </form>
    </Dialog>
  );
}
