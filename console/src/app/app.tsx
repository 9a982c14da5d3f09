import { useCallback, useEffect, useState } from 'react';
import { type Asked, askedBy, keepAsked, takeAsked } from '../api/access.ts';
import { ApiError, getSession, type Session } from '../api/client.ts';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { AccessPage } from '../pages/access.tsx';
import { AccountPage } from '../pages/account.tsx';
import { ConfirmAddressPage } from '../pages/confirm-address.tsx';
import { FirstRequestPage } from '../pages/first-request.tsx';
import { InvitePage } from '../pages/invite.tsx';
import { refusalIn, SignInPage } from '../pages/sign-in.tsx';

type State =
  | { at: 'loading' }
  | { at: 'signed-out'; reason: string | null; token: string | null }
  | { at: 'signed-in'; session: Session }
  | { at: 'account'; session: Session }
  | { at: 'asked'; asked: Asked; session: Session }
  | { at: 'invited'; token: string | null }
  | { at: 'confirming'; token: string | null }
  | { at: 'unreachable'; message: string };

/**
 * Takes the one-time token out of the address, where it would stay in history and be copied along. Read once, when the
 * page loads: a token is used up by its first exchange.
 */
function takeToken(): string | null {
  const token = location.hash.slice(1) || new URLSearchParams(location.search).get('token');
  if (location.hash || location.search) history.replaceState(null, '', location.pathname);
  return token || null;
}

function goTo(path: string) {
  if (location.pathname !== path) history.pushState(null, '', path);
}

export function App() {
  const [state, setState] = useState<State>({ at: 'loading' });

  const signedOut = useCallback((reason: string | null) => {
    goTo('/console/sign-in');
    setState({ at: 'signed-out', reason, token: null });
  }, []);
  const signedIn = useCallback((session: Session) => {
    const asked = takeAsked();
    goTo(asked?.path ?? '/console/');
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
      if (session && location.pathname === '/console/account') setState({ at: 'account', session });
      else if (session) signedIn(session);
      else signedOut(refusal);
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

  if (state.at === 'signed-in') return <FirstRequestPage session={state.session} onSignedOut={signedOut} />;
  if (state.at === 'asked') return <AccessPage asked={state.asked} session={state.session} />;
  if (state.at === 'account') return <AccountPage session={state.session} />;
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
