import { ShieldAlert, ShieldCheck } from 'lucide-react';
import type { Operations } from '../../../types/api.ts';
import { count } from '../../app/format.ts';
import { plural, t } from '../../app/i18n.ts';
import { CopyLine } from '../../components/copy.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Failure } from '../../ui/states.tsx';

type Verification = Operations['POST /v1/audit-logs/verify']['answer'];

/** What following the chain has found: that all is as it was written, or the first row that is not. */
export function Verdict(props: {
  verify: { readonly data: Verification | undefined; readonly error: Error | null };
  onRetry: () => void;
}) {
  const { verify, onRetry } = props;
  const { data, error } = verify;
  return (
    <div role="status">
      {error && <Failure error={error} onRetry={onRetry} />}
      {data && !error && <Found found={data} />}
    </div>
  );
}

function Found({ found }: { found: Verification }) {
  const { valid, rows, first_seq, last_seq, last_hash, unchained, finding } = found;
  return (
    <section className={valid ? 'verdict ok' : 'verdict bad'} aria-labelledby="verdict">
      <h2 id="verdict" className="verdict-title">
        {valid ? <ShieldCheck size={18} aria-hidden="true" /> : <ShieldAlert size={18} aria-hidden="true" />}
        {valid
          ? plural(rows, {
              one: 'The only row is what Sluice wrote, and none is missing.',
              other: 'All {n} rows are what Sluice wrote, and none is missing.',
            })
          : t('The log was changed after row {n}.', { n: count(last_seq) })}
      </h2>
      {finding && (
        <p>
          {t('What is wrong:')} <span translate="no">{finding.message}</span>
        </p>
      )}
      {first_seq > 1 && <p>{t('Rows before row {n} were removed after their time.', { n: count(first_seq) })}</p>}
      {unchained > 0 && (
        <p>{t('{n} rows are from before the chain: nothing can be said of them.', { n: unchained })}</p>
      )}
      {last_hash !== null && (
        <>
          <CopyLine label={t('Hash of row {n}', { n: count(last_seq) })} value={last_hash} />
          <div className="row wrap">
            <span className="muted">{t('Keep it elsewhere. A later check has the same hash for this row.')}</span>
            <AsCurl call={{ operation: 'POST /v1/audit-logs/verify' }} />
          </div>
        </>
      )}
    </section>
  );
}
