/** What dry runs say: of the rows by line, and of cost and time at each account that was tried. */
import { count } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { Badge } from '../../ui/page.tsx';
import { usd } from '../train/words.tsx';

interface Report {
  readonly rows: number;
  readonly valid: number;
  readonly tokens: number | null;
  readonly duplicates: number;
  readonly problems: readonly { readonly line: number; readonly code: string; readonly reason: string }[];
}

/** The answer to a create request with `x-gateway-dry-run: true`. Without `files` the file is a provider's. */
export interface DryRun {
  readonly target: { readonly provider: string; readonly slug: string | null; readonly model: string | null };
  readonly valid?: boolean;
  readonly files?: { readonly training_file: Report | null; readonly validation_file: Report | null };
  readonly estimate?: {
    readonly epochs: number;
    readonly epochs_assumed: boolean;
    readonly trained_tokens: number;
    readonly cost: { readonly usd: number } | null;
    readonly seconds: number;
  };
}

export function Plan({ plans }: { plans: readonly DryRun[] }) {
  const last = plans.at(-1);
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section className="table-box" tabIndex={0} aria-label={t('Estimates by account')}>
        <table className="list">
          <thead>
            <tr>
              <th scope="col">{t('Account and model')}</th>
              <th scope="col">{t('Rows')}</th>
              <th scope="col" className="number">
                {t('Trained tokens')}
              </th>
              <th scope="col" className="number">
                {t('Cost, about')}
              </th>
              <th scope="col" className="number">
                {t('Time, about')}
              </th>
            </tr>
          </thead>
          <tbody>
            {plans.map(({ target, valid, estimate }) => (
              <tr key={`${target.slug}/${target.model}`}>
                <th scope="row" translate="no">
                  @{target.slug}/{target.model}
                </th>
                <td>
                  <Badge tone={valid === false ? 'bad' : 'ok'}>{valid === false ? t('problems') : t('valid')}</Badge>
                </td>
                <td className="number">{estimate ? count(estimate.trained_tokens) : '–'}</td>
                <td className="number">{estimate?.cost ? usd(estimate.cost.usd) : t('no price')}</td>
                <td className="number">{estimate ? t('{n} s', { n: estimate.seconds }) : '–'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {last?.estimate?.epochs_assumed && (
        <p className="muted">{t('The provider chooses the epochs; {n} are assumed.', { n: last.estimate.epochs })}</p>
      )}
      {last?.files?.training_file && <Rows name={t('Training file')} report={last.files.training_file} />}
      {last?.files?.validation_file && <Rows name={t('Validation file')} report={last.files.validation_file} />}
    </>
  );
}

function Rows({ name, report }: { name: string; report: Report }) {
  const { rows, valid, tokens, duplicates, problems } = report;
  return (
    <>
      <p role="status">
        <strong>{name}</strong>:{' '}
        {t('{valid} of {rows} rows are valid, {n} tokens, {duplicates} repeat an earlier row.', {
          valid,
          rows,
          n: tokens ?? 0,
          duplicates,
        })}
      </p>
      {problems.length > 0 && (
        <ul className="plain-list" aria-label={t('Problems of {name}', { name })}>
          {problems.map(({ line, code, reason }) => (
            <li key={`${line}${code}`} translate="no">
              <strong>{t('line {line}', { line: String(line) })}</strong>: {reason}
            </li>
          ))}
        </ul>
      )}
    </>
  );
}
