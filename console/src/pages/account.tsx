import { type FormEvent, useEffect, useState } from 'react';
import { ApiError, askForAddress, type LimitAlert, listAlerts, type Session } from '../api/client.ts';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';
import { useSession } from '../shell/session.tsx';
import { Passkeys } from './passkeys.tsx';
import { Programs } from './programs.tsx';

/** The own address of the user, and the alerts of the usage limits that the user may see. */
export function Page() {
  const { session } = useSession();
  return (
    <>
      <PageHeading>Your account</PageHeading>
      <div className="columns">
        <Address session={session} />
        <Passkeys session={session} />
        <Programs session={session} />
        <Alerts session={session} />
      </div>
    </>
  );
}

function Address({ session }: { session: Session }) {
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
      await askForAddress(session, email.trim());
      setSent(email.trim());
    } catch (cause) {
      setError(messageOf(cause));
    }
    setBusy(false);
  };

  return (
    <section className="card" aria-labelledby="address-heading">
      <h2 id="address-heading">Your e-mail address</h2>
      <p>
        You sign in as <strong>{session.user.email}</strong>.
      </p>
      <form onSubmit={(event) => void onSubmit(event)} className="paste">
        <label htmlFor="new-email">New e-mail address</label>
        <div className="row">
          <input
            id="new-email"
            type="email"
            required
            autoComplete="email"
            value={email}
            onChange={(event) => setEmail(event.target.value)}
          />
          <button type="submit" className="button primary" disabled={busy || email.trim() === ''}>
            Change address
          </button>
        </div>
        <div role="status">
          {sent !== null && (
            <Notice tone="info" title={`A link is on its way to ${sent}.`}>
              <p>Open it in this browser within an hour. Your address changes then.</p>
            </Notice>
          )}
        </div>
        {error !== null && <Notice tone="bad" title={error} />}
      </form>
    </section>
  );
}

const KINDS: Record<LimitAlert['alert'], string> = {
  threshold: 'Threshold crossed',
  exhausted: 'Limit used up',
  unpriced: 'Request without a price',
};
const STATES: Record<LimitAlert['status'], string> = {
  waiting: 'waiting',
  delivered: 'delivered',
  failed: 'not delivered',
  no_recipients: 'no recipients',
};

function Alerts({ session }: { session: Session }) {
  const [workspaceId, setWorkspaceId] = useState(session.workspaces[0]?.id ?? '');
  const [alerts, setAlerts] = useState<LimitAlert[] | null>(null);
  const [error, setError] = useState<string | null>(null);

  useEffect(() => {
    let current = true;
    setAlerts(null);
    setError(null);
    if (workspaceId === '') return setAlerts([]);
    listAlerts(workspaceId).then(
      (found) => current && setAlerts(found),
      (cause) => current && setError(messageOf(cause)),
    );
    return () => {
      current = false;
    };
  }, [workspaceId]);

  return (
    <section className="card" aria-labelledby="alerts-heading">
      <h2 id="alerts-heading">Alerts of usage limits</h2>
      {session.workspaces.length > 1 && (
        <label className="field">
          <span>Workspace</span>
          <select value={workspaceId} onChange={(event) => setWorkspaceId(event.target.value)}>
            {session.workspaces.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
      {error !== null && <Notice tone="bad" title={error} />}
      <div role="status">
        {error === null && alerts === null && <p>Loading…</p>}
        {alerts?.length === 0 && <p className="muted">No alerts in the last 30 days.</p>}
      </div>
      {alerts !== null && alerts.length > 0 && (
        <ul aria-labelledby="alerts-heading">
          {alerts.map((alert) => (
            <li key={alert.id}>
              <strong>{KINDS[alert.alert]}</strong>: {alert.policy}
              {alert.value_key !== null && ` (${alert.value_key})`}
              <br />
              <span className="muted">
                <time dateTime={alert.created_at}>{new Date(alert.created_at).toLocaleString()}</time>,{' '}
                {alert.recipient === null ? '' : `${alert.recipient}: `}
                {STATES[alert.status]}
              </span>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

const messageOf = (cause: unknown): string => (cause instanceof ApiError ? cause.message : String(cause));
