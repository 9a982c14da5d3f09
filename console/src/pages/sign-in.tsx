import { type FormEvent, useEffect, useState } from 'react';
import { ApiError, mailLink, mailsLinks, type Session, signIn } from '../api/client.ts';
import { CodeBlock } from '../components/copy.tsx';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';

/** Has a link mailed; shown where the server sends mail. */
function MailForm() {
  const [shown, setShown] = useState(false);
  const [email, setEmail] = useState('');
  const [busy, setBusy] = useState(false);
  const [sent, setSent] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);

  useEffect(() => {
    // Without an answer the page offers the other ways only.
    mailsLinks().then(setShown, () => undefined);
  }, []);

  const onSubmit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    setSent(null);
    try {
      await mailLink(email.trim());
      setSent(email.trim());
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
    setBusy(false);
  };

  if (!shown) return null;
  return (
    <form onSubmit={(event) => void onSubmit(event)} className="paste">
      <label htmlFor="email">Your e-mail address</label>
      <div className="row">
        <input
          id="email"
          type="email"
          required
          autoComplete="email"
          value={email}
          onChange={(event) => setEmail(event.target.value)}
        />
        <button type="submit" className="button primary" disabled={busy || email.trim() === ''}>
          E-mail me a link
        </button>
      </div>
      <div role="status">
        {sent !== null && (
          <Notice tone="info" title={`If a user has the address ${sent}, a link is on its way.`}>
            <p>It works once, for 15 minutes. Look into your spam folder, too.</p>
          </Notice>
        )}
      </div>
      {error !== null && <Notice tone="bad" title={error} />}
    </form>
  );
}

/** Sign-in by one-time link: at once when the address carries a token, else by pasting a link. */
export function SignInPage(props: {
  token: string | null;
  /** Why the reader ended up here, if there is something to say. */
  reason: string | null;
  onSignedIn: (session: Session) => void;
}) {
  const { token, reason, onSignedIn } = props;
  const [busy, setBusy] = useState(token !== null);
  const [error, setError] = useState<string | null>(null);
  const [pasted, setPasted] = useState('');

  const exchange = async (value: string) => {
    setBusy(true);
    setError(null);
    try {
      onSignedIn(await signIn(value));
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
      setBusy(false);
    }
  };

  // biome-ignore lint/correctness/useExhaustiveDependencies: once per token, which works only once
  useEffect(() => {
    if (token !== null) void exchange(token);
  }, [token]);

  const onSubmit = (event: FormEvent) => {
    event.preventDefault();
    const value = pasted.trim();
    void exchange(value.split('#')[1] ?? value.split('token=')[1] ?? value);
  };

  return (
    <main className="centre">
      <Logo />
      <div className="card narrow">
        <PageHeading>{error ? 'This link did not work' : 'Sign in'}</PageHeading>
        {busy ? (
          <p role="status">Signing you in…</p>
        ) : (
          <>
            {error ? (
              <Notice tone="bad" title={error.split(' Get a new one')[0] ?? error} />
            ) : (
              reason && <Notice tone="info" title={reason} />
            )}
            <MailForm />
            <p>Sluice signs you in with a one-time link. Make one on the machine that runs Sluice, in its folder:</p>
            <CodeBlock code="npm run sluice -- console-link" what="the command that makes a sign-in link" />
            <p className="muted">
              Then open the link it prints. It works once, within 15 minutes. The command signs in the owner. For your
              own account, add your e-mail address: <code>npm run sluice -- console-link you@company.com</code>
            </p>
            <form onSubmit={onSubmit} className="paste">
              <label htmlFor="link">Or paste the link here</label>
              <div className="row">
                <input
                  id="link"
                  type="text"
                  autoComplete="off"
                  spellCheck={false}
                  value={pasted}
                  onChange={(event) => setPasted(event.target.value)}
                />
                <button type="submit" className="button primary" disabled={pasted.trim() === ''}>
                  Sign in
                </button>
              </div>
            </form>
          </>
        )}
      </div>
    </main>
  );
}
