import { useEffect, useState } from 'react';
import { ApiError, confirmAddress, getSession } from '../api/client.ts';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';

async function confirm(token: string | null): Promise<string> {
  if (token === null) throw new ApiError(400, 'The link is incomplete. Open it from the mail again.');
  const session = await getSession();
  if (session === null) throw new ApiError(401, 'Sign in first in this browser. Then open the link in the mail again.');
  return confirmAddress(session, token);
}

/** Where the link to a new address leads: it changes the address of the signed-in user. */
export function ConfirmAddressPage({ token }: { token: string | null }) {
  const [email, setEmail] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);

  useEffect(() => {
    confirm(token).then(setEmail, (cause) => setError(cause instanceof ApiError ? cause.message : String(cause)));
  }, [token]);

  return (
    <main className="centre">
      <Logo />
      <div className="card narrow">
        <PageHeading>{error ? 'Your address did not change' : 'Your address'}</PageHeading>
        {error !== null && <Notice tone="bad" title={error} />}
        {error === null && <p role="status">{email === null ? 'One moment…' : `Your address is ${email} now.`}</p>}
        <p>
          <a href="/console/">Go to the console</a>
        </p>
      </div>
    </main>
  );
}
