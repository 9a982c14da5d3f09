import { type FormEvent, useEffect, useState } from 'react';
import { type Acceptance, ApiError, acceptInvite, getInvite, type Invite, type Session } from '../api/client.ts';
import { SecretLine } from '../components/copy.tsx';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';

type State =
  | { at: 'loading' }
  | { at: 'refused'; message: string }
  | { at: 'offered'; invite: Invite }
  | { at: 'accepted'; acceptance: Acceptance };

const INCOMPLETE = 'The address holds no invite. Open the whole link that you were sent.';

/** What an invite offers, and who accepts it. A key that comes with it is shown here and never again. */
export function InvitePage(props: { token: string | null; onSignedIn: (session: Session) => void }) {
  const { token, onSignedIn } = props;
  const [state, setState] = useState<State>(
    token === null ? { at: 'refused', message: INCOMPLETE } : { at: 'loading' },
  );

  useEffect(() => {
    if (token === null) return;
    getInvite(token).then(
      (invite) => setState({ at: 'offered', invite }),
      (cause) => setState({ at: 'refused', message: messageOf(cause) }),
    );
  }, [token]);

  const onAccepted = (acceptance: Acceptance) => {
    if (acceptance.api_keys.length === 0) onSignedIn(acceptance.session);
    else setState({ at: 'accepted', acceptance });
  };

  return (
    <main className="centre">
      <Logo />
      <div className="card narrow">
        {state.at === 'loading' && <p role="status">Looking at your invite…</p>}
        {state.at === 'refused' && (
          <>
            <PageHeading>This invite did not work</PageHeading>
            <Notice tone="bad" title={state.message} />
            <p>
              <a href="/console/">Go to the console</a>
            </p>
          </>
        )}
        {state.at === 'offered' && token !== null && (
          <Offer token={token} invite={state.invite} onAccepted={onAccepted} />
        )}
        {state.at === 'accepted' && <Keys acceptance={state.acceptance} onContinue={onSignedIn} />}
      </div>
    </main>
  );
}

function Offer(props: { token: string; invite: Invite; onAccepted: (acceptance: Acceptance) => void }) {
  const { token, invite, onAccepted } = props;
  const [first, setFirst] = useState('');
  const [last, setLast] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);

  const accept = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      onAccepted(await acceptInvite(token, first.trim(), last.trim()));
    } catch (cause) {
      setError(messageOf(cause));
      setBusy(false);
    }
  };

  return (
    <>
      <PageHeading>{`Join ${invite.organisation.name}`}</PageHeading>
      <p>
        You are invited as <strong>{invite.role}</strong> of {invite.organisation.name}, with the address{' '}
        <strong>{invite.email}</strong>.
      </p>
      {invite.workspaces.length > 0 && (
        <ul>
          {invite.workspaces.map((workspace) => (
            <li key={workspace.slug}>
              Workspace {workspace.name}, as {workspace.role}
            </li>
          ))}
        </ul>
      )}
      {error && <Notice tone="bad" title={error} />}
      <form onSubmit={(event) => void accept(event)}>
        <label className="field">
          <span>First name</span>
          <input
            type="text"
            autoComplete="given-name"
            maxLength={100}
            required
            value={first}
            onChange={(event) => setFirst(event.target.value)}
          />
        </label>
        <label className="field">
          <span>Last name</span>
          <input
            type="text"
            autoComplete="family-name"
            maxLength={100}
            required
            value={last}
            onChange={(event) => setLast(event.target.value)}
          />
        </label>
        <div className="row actions">
          <button type="submit" className="button primary" disabled={busy || first.trim() === '' || last.trim() === ''}>
            {busy ? 'Accepting…' : 'Accept the invite'}
          </button>
        </div>
      </form>
    </>
  );
}

function Keys({ acceptance, onContinue }: { acceptance: Acceptance; onContinue: (session: Session) => void }) {
  const { api_keys: keys, session } = acceptance;
  const [copied, setCopied] = useState<ReadonlySet<string>>(new Set());
  const [warned, setWarned] = useState(false);
  const missing = keys.filter((key) => !copied.has(key.id));
  const unsafe = missing.length > 0;

  useEffect(() => {
    if (!unsafe) return;
    const ask = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener('beforeunload', ask);
    return () => window.removeEventListener('beforeunload', ask);
  }, [unsafe]);

  return (
    <>
      <PageHeading>{`Welcome to ${session.organisation.name}`}</PageHeading>
      <p>
        {keys.length > 1
          ? 'These are your API keys. They are shown only here: copy them now, and keep them like passwords.'
          : 'This is your API key. It is shown only here: copy it now, and keep it like a password.'}
      </p>
      {keys.map((key) => (
        <SecretLine
          key={key.id}
          label={`Key for ${key.workspace.name}`}
          value={key.key}
          onCopied={() => setCopied((known) => new Set(known).add(key.id))}
        />
      ))}
      {warned && unsafe && (
        <Notice
          tone="bad"
          title={
            missing.length > 1
              ? `You have not copied ${missing.length} of your keys. They cannot be shown again.`
              : 'You have not copied your key. It cannot be shown again.'
          }
        />
      )}
      <div className="row actions">
        <button
          type="button"
          className="button primary"
          onClick={() => (unsafe && !warned ? setWarned(true) : onContinue(session))}
        >
          {warned && unsafe ? 'Go to the console without copying' : 'Go to the console'}
        </button>
      </div>
    </>
  );
}

const messageOf = (cause: unknown): string => (cause instanceof ApiError ? cause.message : String(cause));
