/** Columns of lists of requests: which there are, and which the address has chosen. */
import { Columns3 } from 'lucide-react';
import { useState } from 'react';
import { count, dateTime, dollars, duration, type Zone, zoneName } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useUrl } from '../../shell/url-state.ts';
import { To } from '../../ui/link.tsx';
import { Popover } from '../../ui/menu.tsx';
import type { Column } from '../../ui/table.tsx';
import { Outcome } from './outcome.tsx';
import type { Log } from './tail.ts';

/** `gpt-4o → echo` where another model answered. */
export const modelOf = (row: Log): string =>
  row.model_answered && row.model && row.model_answered !== row.model
    ? `${row.model} → ${row.model_answered}`
    : (row.model_answered ?? row.model ?? '–');

export const whoOf = (row: Log): string =>
  row.user?.name ?? row.metadata?._user ?? row.api_key?.name ?? (row.api_key ? t('deleted key') : '–');

export const costOf = (row: Log): string => (row.cost_micros === null ? '–' : dollars(row.cost_micros));
export const pathOf = (row: Log): string => `/requests/${row.id}`;

/** What a column is, and its cell as a text. */
interface Known {
  readonly id: string;
  readonly header: string;
  readonly numeric?: true;
  readonly grow?: true;
  readonly text: (row: Log) => string;
}

const millis = (ms: number | null) => (ms === null ? '–' : duration(ms));

const known = (): readonly Known[] => [
  { id: 'workspace', header: t('Workspace'), text: (row) => row.workspace?.name ?? '–' },
  { id: 'model', header: t('Model'), grow: true, text: modelOf },
  { id: 'provider', header: t('Provider'), text: (row) => row.provider_slug ?? row.provider ?? '–' },
  { id: 'who', header: t('Key or user'), text: whoOf },
  { id: 'error', header: t('Error code'), text: (row) => row.error_code ?? '–' },
  {
    id: 'tokens',
    header: t('Tokens in / out'),
    numeric: true,
    text: (row) => (row.tokens_in === null ? '–' : `${count(row.tokens_in)} / ${count(row.tokens_out ?? 0)}`),
  },
  { id: 'cost', header: t('Cost ($)'), numeric: true, text: costOf },
  { id: 'ttft', header: t('First token'), numeric: true, text: (row) => millis(row.ttft_ms) },
  { id: 'latency', header: t('Total'), numeric: true, text: (row) => millis(row.latency_ms) },
  { id: 'operation', header: t('Operation'), text: (row) => row.operation ?? '–' },
  { id: 'cache', header: t('Cache'), text: (row) => row.cache_status ?? '–' },
  { id: 'config', header: t('Config'), text: (row) => row.config_slug ?? '–' },
  { id: 'trace', header: t('Trace id'), text: (row) => row.trace_id ?? '–' },
];

const DEFAULT = ['model', 'provider', 'who', 'tokens', 'cost', 'latency'] as const;
const METADATA = 'metadata.';

const metadataColumn = (id: string): Known => ({
  id,
  header: id,
  text: (row) => row.metadata?.[id.slice(METADATA.length)] ?? '–',
});

/** The chosen columns, and how others are chosen. `all`: the list is of several workspaces. */
export function useColumns(all: boolean, own: readonly string[] = DEFAULT) {
  const { get, set } = useUrl();
  const named = get('cols');
  const standard = all ? ['workspace', ...own] : own;
  const ids = named === '' ? standard : named.split(',');
  const columns = known();
  const chosen = [
    ...columns.filter(({ id }) => ids.includes(id)),
    ...ids.filter((id) => id.startsWith(METADATA) && id.length > METADATA.length).map(metadataColumn),
  ];
  const choose = (next: readonly string[]) => {
    const same = next.length === standard.length && standard.every((id) => next.includes(id));
    set({ cols: same || next.length === 0 ? null : next.join(',') });
  };
  return { chosen, ids: chosen.map(({ id }) => id), choose, columns };
}

/** As the table takes them: time and outcome come first, always. */
export function tableColumns(chosen: readonly Known[], zone: Zone): Column<Log>[] {
  return [
    {
      id: 'time',
      header: t('Time ({zone})', { zone: zoneName(zone) }),
      cell: (row) => <To path={pathOf(row)}>{dateTime(row.created_at, zone)}</To>,
    },
    { id: 'outcome', header: t('Outcome'), cell: (row) => <Outcome outcome={row.outcome} status={row.status} /> },
    ...chosen.map(({ id, header, numeric, grow, text }) => ({
      id,
      header,
      numeric,
      grow,
      cell: (row: Log) => (
        <span translate="no" title={id === 'who' ? row.api_key?.id : grow ? text(row) : undefined}>
          {text(row)}
        </span>
      ),
    })),
  ];
}

export function ColumnPicker({ all, own }: { all: boolean; own?: readonly string[] | undefined }) {
  const { ids, choose, columns } = useColumns(all, own);
  const [key, setKey] = useState('');
  const toggle = (id: string) => choose(ids.includes(id) ? ids.filter((one) => one !== id) : [...ids, id]);
  return (
    <Popover
      align="end"
      label={
        <>
          <Columns3 size={15} aria-hidden="true" /> {t('Columns')}
        </>
      }
    >
      {() => (
        <fieldset className="picker">
          <legend>{t('Columns beside time and outcome')}</legend>
          {[...columns, ...ids.filter((id) => id.startsWith(METADATA)).map(metadataColumn)].map(({ id, header }) => (
            <label key={id} className="choice">
              <input type="checkbox" checked={ids.includes(id)} onChange={() => toggle(id)} /> <span>{header}</span>
            </label>
          ))}
          <form
            className="row"
            onSubmit={(event) => {
              event.preventDefault();
              const name = key.trim().replaceAll(',', '');
              if (name !== '' && !ids.includes(METADATA + name)) choose([...ids, METADATA + name]);
              setKey('');
            }}
          >
            <label className="field">
              <span>{t('A key of the metadata')}</span>
              <input type="text" autoComplete="off" value={key} onChange={(event) => setKey(event.target.value)} />
            </label>
            <button type="submit" className="button small">
              {t('Add')}
            </button>
          </form>
        </fieldset>
      )}
    </Popover>
  );
}
