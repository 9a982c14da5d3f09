/** The requests of a list as a file, asked of the server page by page. */
import { Download } from 'lucide-react';
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { count } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { csvText, download } from '../../ui/csv.ts';
import { Popover } from '../../ui/menu.tsx';
import { Failure } from '../../ui/states.tsx';
import type { Log } from './tail.ts';

type Query = NonNullable<Operations['GET /v1/logs']['input']['query']>;

/** More is work for `POST /v1/logs/exports`. */
const MOST = 10_000;
const PAGE = 200;

const HEAD = [
  ...['id', 'created_at', 'outcome', 'status', 'error_code', 'operation', 'model', 'model_answered', 'provider_slug'],
  ...['config_slug', 'workspace', 'api_key', 'user', 'tokens_in', 'tokens_out', 'cost_micros', 'ttft_ms', 'latency_ms'],
  ...['cache_status', 'trace_id', 'metadata'],
];

/** A line a request; money in micro-dollars, times in UTC. */
export function requestsCsv(rows: readonly Log[]): string {
  const text = (value: unknown): string => {
    if (value === null || value === undefined) return '';
    if (typeof value !== 'object') return String(value);
    return 'name' in value ? String(value.name ?? ('id' in value ? value.id : '')) : JSON.stringify(value);
  };
  return csvText([HEAD, ...rows.map((row) => HEAD.map((name) => text(row[name as keyof Log])))]);
}

export function Export({ query }: { query: Query }) {
  const [state, setState] = useState<{ read: number; done: boolean; cut: boolean } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const run = async (form: 'csv' | 'jsonl') => {
    if (state && !state.done) return;
    setError(null);
    const rows: Log[] = [];
    let cursor: string | null = null;
    try {
      do {
        setState({ read: rows.length, done: false, cut: false });
        const page: Operations['GET /v1/logs']['answer'] = await answer('GET /v1/logs', {
          query: { ...query, limit: PAGE, ...(cursor === null ? {} : { cursor }) },
        });
        rows.push(...page.data);
        cursor = page.next_cursor;
      } while (cursor !== null && rows.length < MOST);
      const text = form === 'csv' ? requestsCsv(rows) : rows.map((row) => `${JSON.stringify(row)}\n`).join('');
      download(`requests.${form}`, form === 'csv' ? 'text/csv' : 'application/jsonl', text);
      setState({ read: rows.length, done: true, cut: cursor !== null });
    } catch (cause) {
      setState(null);
      setError(cause);
    }
  };
  return (
    <Popover
      align="end"
      label={
        <>
          <Download size={15} aria-hidden="true" /> {t('Export')}
        </>
      }
    >
      {() => (
        <div className="picker">
          <p className="muted">
            {t('All requests of this list, the newest {most} at most. For more, make an export with the API.', {
              most: MOST,
            })}
          </p>
          <div className="row">
            <button type="button" className="button" onClick={() => void run('csv')}>
              CSV
            </button>
            <button type="button" className="button" onClick={() => void run('jsonl')}>
              JSONL
            </button>
          </div>
          <p className="muted" role="status">
            {state !== null && !state.done && t('{read} read…', { read: count(state.read) })}
            {state?.done && t('{read} requests are in the file.', { read: count(state.read) })}
            {state?.cut && ` ${t('There are more.')}`}
          </p>
          {error !== null && <Failure error={error} />}
        </div>
      )}
    </Popover>
  );
}
