/** The rows of the list as a file, each with its place and hash in the chain; the last line is what a check has found. */
import { Download } from 'lucide-react';
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { count } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useSession } from '../../shell/session.tsx';
import { download } from '../../ui/csv.ts';
import { Popover } from '../../ui/menu.tsx';
import { Failure } from '../../ui/states.tsx';
import type { AuditRow } from './words.ts';

type Query = Operations['GET /v1/audit-logs']['input']['query'];

const MOST = 10_000;

export function ExportRows({ query }: { query: Query }) {
  const { session } = useSession();
  const [state, setState] = useState<{ read: number; total: number; done: boolean } | null>(null);
  const [error, setError] = useState<unknown>(null);
  const run = async () => {
    if (state && !state.done) return;
    setError(null);
    const rows: AuditRow[] = [];
    try {
      for (let page = 0; ; page += 1) {
        const found = await answer('GET /v1/audit-logs', { query: { ...query, current_page: page } });
        rows.push(...found.records);
        setState({ read: rows.length, total: found.total, done: false });
        if (found.records.length === 0 || rows.length >= Math.min(MOST, found.total)) break;
      }
      const proof = await answer('POST /v1/audit-logs/verify', {}, { csrf: session.csrf_token });
      download('audit.jsonl', 'application/jsonl', [...rows, proof].map((row) => `${JSON.stringify(row)}\n`).join(''));
      setState((now) => (now === null ? null : { ...now, done: true }));
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
        <div className="curl">
          <p className="muted">
            {t('The rows of this list, up to {n}, each with its signature. The last line is the result of a check.', {
              n: count(MOST),
            })}
          </p>
          <button type="button" className="button small" onClick={() => void run()}>
            JSONL
          </button>
          <p role="status">
            {state && !state.done && t('{n} rows read…', { n: count(state.read) })}
            {state?.done && state.read >= state.total && t('{n} rows are in the file.', { n: count(state.read) })}
            {state?.done &&
              state.read < state.total &&
              t('The file has {n} of {total} rows: choose a shorter range for the rest.', {
                n: count(state.read),
                total: count(state.total),
              })}
          </p>
          {error !== null && <Failure error={error} onRetry={() => void run()} />}
        </div>
      )}
    </Popover>
  );
}
