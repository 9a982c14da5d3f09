/** Who is signed in, for all pages of the frame. */
import { createContext, useContext } from 'react';
import type { Session } from '../api/client.ts';

export interface SessionContext {
  readonly session: Session;
  /** Asks the server again who is signed in: after a sign-in in another tab, or a change of workspaces. */
  readonly refresh: () => Promise<void>;
  /** A call has learnt that the session is over. */
  readonly end: () => void;
  /** Ends the session and leaves the frame; rejects where the server refuses. */
  readonly signOut: () => Promise<void>;
}

const Context = createContext<SessionContext | null>(null);
export const SessionProvider = Context.Provider;

export function useSession(): SessionContext {
  const found = useContext(Context);
  if (found === null) throw new Error('outside of the frame');
  return found;
}

/** Whether the session has a right in any of its workspaces. The server decides for each call; pages only hide what never works. */
export function useCan(): (scope: string | null) => boolean {
  const { session } = useSession();
  return (scope) => scope === null || session.scopes.includes(scope);
}
