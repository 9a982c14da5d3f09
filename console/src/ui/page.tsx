import { RefreshCw } from 'lucide-react';
import type { ReactNode } from 'react';
import { t } from '../app/i18n.ts';
import { PageHeading } from '../components/page-heading.tsx';

/** The head of a page: what it is, what it is for, and what can be done. */
export function PageHead({ title, purpose, actions }: { title: string; purpose?: ReactNode; actions?: ReactNode }) {
  return (
    <div className="page-head">
      <div>
        <PageHeading>{title}</PageHeading>
        {purpose && <p className="lead">{purpose}</p>}
      </div>
      {actions && <div className="page-actions">{actions}</div>}
    </div>
  );
}

/** A bar over old data while new data is on its way. */
export const Refreshing = ({ on }: { on: boolean }) => (
  <div className={on ? 'refreshing on' : 'refreshing'} aria-hidden="true" />
);

export function RefreshButton({ onClick }: { onClick: () => void }) {
  return (
    <button type="button" className="button small" onClick={onClick}>
      <RefreshCw size={15} aria-hidden="true" /> {t('Refresh')}
    </button>
  );
}

/** A titled part of a page. */
export function Card(props: {
  title: string;
  id: string;
  actions?: ReactNode;
  className?: string;
  children: ReactNode;
}) {
  const { title, id, actions, className = '', children } = props;
  return (
    <section className={`card ${className}`} aria-labelledby={id}>
      <div className="card-head">
        <h2 id={id}>{title}</h2>
        {actions}
      </div>
      {children}
    </section>
  );
}

/** Pairs of names and values. */
export function Facts({ facts }: { facts: readonly (readonly [name: string, value: ReactNode])[] }) {
  return (
    <dl className="facts">
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

export type Tone = 'ok' | 'warn' | 'bad' | 'quiet';

/** A state as a mark and a word, in its colour. */
export const Badge = ({ tone, children }: { tone: Tone; children: ReactNode }) => (
  <span className={`badge ${tone}`}>
    <span className="dot" aria-hidden="true" />
    {children}
  </span>
);
