import { type FormEvent, useEffect, useState } from 'react';
import {
  ApiError,
  beginAtProvider,
  mailLink,
  type Session,
  signIn,
  signInWithPasskey,
  waysToSignIn,
} from '../api/client.ts';
import { CodeBlock } from '../components/copy.tsx';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';

/** The ways beside links that somebody hands over, where the server has them. */
function OtherWays({ onSignedIn }: { onSignedIn: (session: Session) => void }) {
  const [ways, setWays] = useState({ mailedLinks: false, passkeys: false });

  useEffect(() => {
    // Without an answer the page offers the other ways only.
    waysToSignIn().then(setWays, () => undefined);
  }, []);

  return (
    <>
      {ways.passkeys && <PasskeyButton onSignedIn={onSignedIn} />}
      {ways.mailedLinks && <MailForm />}
      <ProviderForm />
    </>
  );
}

function PasskeyButton({ onSignedIn }: { onSignedIn: (session: Session) => void }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const onClick = async () => {
    setBusy(true);
    setError(null);
    try {
      onSignedIn(await signInWithPasskey());
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : 'The browser gave no passkey. Try again, or use a link.');
      setBusy(false);
    }
  };

  return (
    <div className="paste">
      <button type="button" className="button primary" disabled={busy} onClick={() => void onClick()}>
        Sign in with a passkey
      </button>
      {error !== null && <Notice tone="bad" title={error} />}
    </div>
  );
}

/** Has a link mailed. */
function MailForm() {
  const [email, setEmail] = useState('');
  const [busy, setBusy] = useState(false);
  const [sent, setSent] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);

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
            <p>It works once, for 15 minutes, in this browser. Look into your spam folder, too.</p>
          </Notice>
        )}
      </div>
      {error !== null && <Notice tone="bad" title={error} />}
    </form>
  );
}

/** Leads to the identity provider of the reader's organisation. */
function ProviderForm() {
  const [email, setEmail] = useState('');
  const [busy, setBusy] = useState(false);
  const [mailed, setMailed] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const onSubmit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    setMailed(false);
    try {
      const url = await beginAtProvider(email.trim());
      if (url !== null) return location.assign(url);
      setMailed(true);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
    setBusy(false);
  };

  return (
    <details>
      <summary>Sign in with your organisation’s identity provider</summary>
      <form onSubmit={(event) => void onSubmit(event)} className="paste">
        <label htmlFor="work-email">Your work e-mail address</label>
        <div className="row">
          <input
            id="work-email"
            type="email"
            required
            autoComplete="email"
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
          <button type="submit" className="button" disabled={busy || email.trim() === ''}>
            Continue
          </button>
        </div>
        <div role="status">
          {mailed && <Notice tone="info" title="If a user has this address, a link is on its way." />}
        </div>
        {error !== null && <Notice tone="bad" title={error} />}
      </form>
    </details>
  );
}

/** What the page says of a sign-in at an identity provider that came back without a session, by the code in its address. */
const REFUSALS: Readonly<Record<string, string>> = {
  access_denied: 'The identity provider did not let you in.',
  login_required: 'The identity provider asks you to sign in there first.',
  interaction_required: 'The identity provider asks you to do something there first.',
  consent_required: 'The identity provider asks for your consent first.',
  provider_error: 'The identity provider could not be asked. Try again in a minute.',
  expired: 'This sign-in is no longer valid, or began in another browser. Start again.',
  invalid_answer: 'The answer of the identity provider was refused. Ask your administrator: the audit log says why.',
  no_account: 'Your account is not set up here. Ask your administrator.',
  too_old: 'Your sign-in at the identity provider is too old. Sign in there again.',
  too_many: 'Too many sign-ins failed. Wait a few minutes.',
  unavailable: 'Signing in does not work at the moment. Try again in a minute.',
};

/** Why a sign-in at an identity provider was refused, from the query of the page's address; null where none was. */
export function refusalIn(search: string): string | null {
  const code = new URLSearchParams(search).get('error');
  if (code === null) return null;
  return (Object.hasOwn(REFUSALS, code) ? REFUSALS[code] : undefined) ?? 'The sign-in was refused. Start again.';
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
            <OtherWays onSignedIn={onSignedIn} />
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
