import { type FormEvent, type ReactNode, useEffect, useState } from 'react';
import {
  type Access,
  type Asked,
  type Device,
  decideAccess,
  decideDevice,
  getAccess,
  getDevice,
} from '../api/access.ts';
import { ApiError, type Session } from '../api/client.ts';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';

const SCOPES: Readonly<Record<string, string>> = {
  mcp: 'list, read and call everything it offers',
  'mcp:read': 'list and read what it offers',
  'mcp:write': 'call its tools',
};

const messageOf = (cause: unknown): string => (cause instanceof ApiError ? cause.message : String(cause));

/** Where a program sends its user: to give it access to an MCP server, or to sign in a command line. */
export function AccessPage({ asked, session }: { asked: Asked; session: Session }) {
  const Page = asked.path === '/console/device' ? DevicePage : ConsentPage;
  return <Page key={asked.token} token={asked.token} session={session} />;
}

interface PageProps {
  readonly token: string | null;
  readonly session: Session;
}

function Frame({ title, error, children }: { title: string; error: string | null; children?: ReactNode }) {
  return (
    <main className="centre">
      <Logo />
      <div className="card narrow">
        <PageHeading>{title}</PageHeading>
        {error !== null && <Notice tone="bad" title={error} />}
        {children}
      </div>
    </main>
  );
}

function ConsentPage({ token, session }: PageProps) {
  const [access, setAccess] = useState<Access | null>(null);
  const [error, setError] = useState<string | null>(token === null ? 'Start again in the program.' : null);
  const [workspace, setWorkspace] = useState(session.workspaces[0]?.id ?? '');
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState(false);

  useEffect(() => {
    if (token !== null) getAccess(session, token).then(setAccess, (cause) => setError(messageOf(cause)));
  }, [token, session]);

  const decide = async (chosen: string | null) => {
    setBusy(true);
    setError(null);
    try {
      const next = await decideAccess(session, token ?? '', chosen);
      setDone(true);
      location.assign(next);
    } catch (cause) {
      setError(messageOf(cause));
      setBusy(false);
    }
  };

  if (done) return <Frame title="Go back to the program" error={null} />;
  if (access === null) {
    if (error !== null) return <Frame title="This request cannot be answered" error={error} />;
    return (
      <Frame title="One moment" error={null}>
        <p role="status">Loading…</p>
      </Frame>
    );
  }
  const { client, redirect_host: host, local, resource, scopes } = access;
  return (
    <Frame title="A program asks for access" error={error}>
      <p>
        <strong className="client">{client.name}</strong> wants to use <code>{resource}</code> as you,{' '}
        {session.user.email}, in {session.organisation.name}. It could{' '}
        {scopes.map((scope) => SCOPES[scope] ?? scope).join(', and ')}.
      </p>
      <p className="muted">
        Its name is its own word.{' '}
        {client.document ? <>It is published at {client.id}. </> : 'Sluice knows no more about it. '}
        {host.endsWith(':') ? (
          <>
            The answer goes to the program on this machine that opens addresses with <code>{host}</code> Sluice cannot
            tell which program that is: allow it only if you trust all programs that you have installed.
          </>
        ) : (
          <>
            The answer goes to <code>{host}</code>
            {local ? ', a program on this machine' : ''}.
          </>
        )}
      </p>
      <form
        onSubmit={(event: FormEvent) => {
          event.preventDefault();
          void decide(workspace);
        }}
      >
        <label className="field">
          <span>Workspace</span>
          <select value={workspace} onChange={(event) => setWorkspace(event.target.value)}>
            {session.workspaces.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <div className="row">
          <button type="submit" className="button primary" disabled={busy || workspace === ''}>
            Allow
          </button>
          <button type="button" className="button" disabled={busy} onClick={() => void decide(null)}>
            Refuse
          </button>
        </div>
      </form>
      <p className="muted">Refuse if you did not just start this in the program.</p>
    </Frame>
  );
}

function DevicePage({ token, session }: PageProps) {
  const [code, setCode] = useState(token ?? '');
  const [device, setDevice] = useState<Device | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [done, setDone] = useState<string | null>(null);

  const attempt = async (work: () => Promise<void>) => {
    setBusy(true);
    setError(null);
    try {
      await work();
    } catch (cause) {
      setError(messageOf(cause));
    }
    setBusy(false);
  };
  const decide = (approved: boolean) =>
    attempt(async () => {
      await decideDevice(session, code, approved);
      setDone(
        approved ? 'The command line is signed in. You can close this page.' : 'Refused. You can close this page.',
      );
    });

  if (done !== null) {
    return (
      <Frame title="Done" error={null}>
        <p role="status">{done}</p>
      </Frame>
    );
  }
  if (device === null) {
    return (
      <Frame title="Sign in a command line" error={error}>
        <form
          className="paste"
          onSubmit={(event: FormEvent) => {
            event.preventDefault();
            void attempt(async () => setDevice(await getDevice(session, code)));
          }}
        >
          <label htmlFor="code">The code that the command line shows</label>
          <div className="row">
            <input
              id="code"
              type="text"
              autoComplete="off"
              spellCheck={false}
              value={code}
              onChange={(event) => setCode(event.target.value)}
            />
            <button type="submit" className="button primary" disabled={busy || code.trim() === ''}>
              Continue
            </button>
          </div>
        </form>
      </Frame>
    );
  }
  return (
    <Frame title="Is this your command line?" error={error}>
      <p>
        Compare the code. Your command line must show <code className="device-code">{code.toUpperCase()}</code>
      </p>
      <p>
        <strong>{device.client_id}</strong> at the address <code>{device.address}</code> asked for it. It would act as
        you, {session.user.email}, in {session.organisation.name}.
      </p>
      <Notice tone="info" title="Refuse if somebody sent you this code or this link." />
      <div className="row">
        <button type="button" className="button primary" disabled={busy} onClick={() => void decide(true)}>
          The code is the same: sign in
        </button>
        <button type="button" className="button" disabled={busy} onClick={() => void decide(false)}>
          Refuse
        </button>
      </div>
    </Frame>
  );
}
