/** What a page says while it has nothing to show, or not what was asked for. */
import { type ReactNode, useEffect, useState } from 'react';
import { ApiError } from '../api/client.ts';
import { t } from '../app/i18n.ts';
import { CopyButton } from '../components/copy.tsx';

const SHOW_AFTER_MS = 150;
const BONES = [1, 2, 3, 4, 5, 6, 7, 8];

/** Bars in place of what comes, after a moment: what comes at once does not flicker. */
export function Loading({ what, rows = 6 }: { what: string; rows?: number }) {
  const [shown, setShown] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setShown(true), SHOW_AFTER_MS);
    return () => clearTimeout(timer);
  }, []);
  return (
    <div className="skeleton" role="status">
      <span className="visually-hidden">{t('Loading {what}…', { what })}</span>
      {shown && BONES.slice(0, rows).map((at) => <span key={at} className="bone" />)}
    </div>
  );
}

/** Nothing is there: one sentence, one action. */
export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <p className="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** Nothing matches. */
export function NoMatch({ what, filters, onClear }: { what: string; filters: number; onClear: () => void }) {
  return (
    <Empty
      title={
        filters === 1
          ? t('No {what} match this filter', { what })
          : t('No {what} match these {filters} filters', { what, filters })
      }
    >
      <button type="button" className="button" onClick={onClear}>
        {t('Clear filters')}
      </button>
    </Empty>
  );
}

/** A refusal or a failure, in the server's words. */
export function Failure({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  const known = error instanceof ApiError ? error : null;
  const message = known?.message ?? (error instanceof Error ? error.message : String(error));
  const waits = known?.status === 429 ? known.refusal.retryAfter : null;
  return (
    <div className="failure" role="alert">
      <p className="empty-title">{titleOf(known)}</p>
      <p translate="no">{message}</p>
      {waits ? <Countdown seconds={waits} onEnd={onRetry} /> : null}
      <div className="row wrap">
        {onRetry && (
          <button type="button" className="button" onClick={onRetry}>
            {t('Try again')}
          </button>
        )}
        {known?.status === 403 && <CopyButton text={message} what={t('the request for your admin')} />}
        {known?.refusal.requestId && (
          <span className="muted">
            {t('Request')} <code>{known.refusal.requestId}</code>
          </span>
        )}
      </div>
    </div>
  );
}

function titleOf(error: ApiError | null): string {
  switch (error?.status) {
    case 0:
      return t('Lost contact with Sluice');
    case 403:
      return t('You cannot see this yet');
    case 404:
      return t('Not found or not visible to you');
    case 429:
      return t('Too many requests for a moment');
    default:
      return t('This did not load');
  }
}

function Countdown({ seconds, onEnd }: { seconds: number; onEnd?: (() => void) | undefined }) {
  const [left, setLeft] = useState(seconds);
  useEffect(() => {
    if (left <= 0) {
      onEnd?.();
      return;
    }
    const timer = setTimeout(() => setLeft(left - 1), 1000);
    return () => clearTimeout(timer);
  }, [left, onEnd]);
  return <p className="muted">{t('Next try in {left} s', { left: Math.max(0, left) })}</p>;
}

/** Over data that could not be refreshed. */
export function Stale({ since, onRetry }: { since: string; onRetry: () => void }) {
  return (
    <p className="stale" role="status">
      {t('Lost contact. Showing what was loaded at {since}.', { since })}{' '}
      <button type="button" className="button small" onClick={onRetry}>
        {t('Try again')}
      </button>
    </p>
  );
}
