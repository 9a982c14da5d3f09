import { lazy, Suspense, useCallback, useEffect, useState } from 'react';
import { type Asked, askedBy, keepAsked, takeAsked } from '../api/access.ts';
import { ApiError, getSession, type Session } from '../api/client.ts';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { AccessPage } from '../pages/access.tsx';
import { ConfirmAddressPage } from '../pages/confirm-address.tsx';
import { InvitePage } from '../pages/invite.tsx';
import { refusalIn, SignInPage } from '../pages/sign-in.tsx';
import { t } from './i18n.ts';

/** What signed-in people see; the page of the sign-in does not wait for it. */
const Shell = lazy(async () => ({ default: (await import('../shell/shell.tsx')).Shell }));

/** Where somebody wanted to go before signing in, in this tab. */
const TARGET = 'sluice.target';
/** Pages whose address may hold a one-time token. */
const TOKEN_PAGES = /^\/console\/(sign-in|invite|email|authorize|device)$/;

type State =
  | { at: 'loading' }
  | { at: 'signed-out'; reason: string | null; token: string | null }
  | { at: 'signed-in'; session: Session }
  | { at: 'asked'; asked: Asked; session: Session }
  | { at: 'invited'; token: string | null }
  | { at: 'confirming'; token: string | null }
  | { at: 'unreachable'; message: string };

/**
 * Takes the one-time token out of the address, where it would stay in history and be copied along. Read once, when the
 * page loads: a token is used up by its first exchange.
 */
function takeToken(): string | null {
  if (!TOKEN_PAGES.test(location.pathname)) return null;
  const token = location.hash.slice(1) || new URLSearchParams(location.search).get('token');
  if (location.hash || location.search) history.replaceState(null, '', location.pathname);
  return token || null;
}

function goTo(path: string) {
  if (location.pathname !== path) history.pushState(null, '', path);
}

function keepTarget() {
  if (!TOKEN_PAGES.test(location.pathname)) sessionStorage.setItem(TARGET, location.pathname + location.search);
}

/** Where a user goes after signing in: where they wanted to, else members to their own page. */
function takeTarget({ user }: Session): string {
  const kept = sessionStorage.getItem(TARGET);
  sessionStorage.removeItem(TARGET);
  return kept?.startsWith('/console/') ? kept : `/console/${user.role === 'member' ? 'me' : ''}`;
}

export function App() {
  const [state, setState] = useState<State>({ at: 'loading' });

  const signedOut = useCallback((reason: string | null) => {
    goTo('/console/sign-in');
    setState({ at: 'signed-out', reason, token: null });
  }, []);
  const signedIn = useCallback((session: Session) => {
    const asked = takeAsked();
    if (asked !== null) goTo(asked.path);
    else if (TOKEN_PAGES.test(location.pathname)) history.replaceState(null, '', takeTarget(session));
    setState(asked === null ? { at: 'signed-in', session } : { at: 'asked', asked, session });
  }, []);

  const start = useCallback(async () => {
    // Before the query is taken from the address.
    const refusal = location.pathname === '/console/sign-in' ? refusalIn(location.search) : null;
    const token = takeToken();
    if (location.pathname === '/console/invite') return setState({ at: 'invited', token });
    if (location.pathname === '/console/email') return setState({ at: 'confirming', token });
    const asked = askedBy(location.pathname, token);
    if (token && asked === null) return setState({ at: 'signed-out', reason: null, token });
    try {
      const session = await getSession();
      if (session && asked !== null) return setState({ at: 'asked', asked, session });
      if (asked !== null) {
        keepAsked(asked);
        return signedOut('Sign in to answer the program.');
      }
      if (session) return signedIn(session);
      keepTarget();
      signedOut(refusal);
    } catch (error) {
      setState({ at: 'unreachable', message: error instanceof ApiError ? error.message : String(error) });
    }
  }, [signedIn, signedOut]);

  useEffect(() => {
    void start();
    // A pasted link changes only the fragment when the console is already open, so the page does not load again.
    const onHash = () => void start();
    addEventListener('hashchange', onHash);
    return () => removeEventListener('hashchange', onHash);
  }, [start]);

  if (state.at === 'signed-in') {
    return (
      <Suspense fallback={<p role="status">{t('Loading…')}</p>}>
        <Shell session={state.session} onSignedOut={() => signedOut(null)} />
      </Suspense>
    );
  }
  if (state.at === 'asked') return <AccessPage asked={state.asked} session={state.session} />;
  if (state.at === 'invited') return <InvitePage key={state.token} token={state.token} onSignedIn={signedIn} />;
  if (state.at === 'confirming') return <ConfirmAddressPage key={state.token} token={state.token} />;
  if (state.at === 'signed-out') {
    return <SignInPage key={state.token} token={state.token} reason={state.reason} onSignedIn={signedIn} />;
  }
  return (
    <main className="centre">
      <Logo />
      {state.at === 'loading' ? (
        <p role="status">Loading…</p>
      ) : (
        <>
          <Notice tone="bad" title="The console cannot load">
            <p>{state.message}</p>
          </Notice>
          <button type="button" className="button primary" onClick={() => void start()}>
            Try again
          </button>
        </>
      )}
    </main>
  );
}
