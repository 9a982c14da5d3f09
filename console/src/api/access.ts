/** What the pages ask that give access to programs, and what they keep while a user signs in. */
import type { ConsoleAccess, ConsoleSession, Operations } from '../../types/api.ts';
import { answer } from './client.ts';

export type Access = ConsoleAccess;
export type Device = Operations['POST /console/api/device']['answer'];

/** The pages that a program opens. Behind `#` is what it asks for, or the code that it shows. */
const PAGES: readonly string[] = ['/console/authorize', '/console/device'];
const KEY = 'sluice.access';
/** As long as a request for access waits. */
const WAITS_MS = 10 * 60_000;

export interface Asked {
  readonly path: string;
  readonly token: string | null;
}

/** What the address asks for; null on any other page. */
export function askedBy(path: string, token: string | null): Asked | null {
  return PAGES.includes(path) ? { path, token } : null;
}

/** Keeps what is asked for while the user signs in, which may take another tab. */
export function keepAsked(asked: Asked): void {
  localStorage.setItem(KEY, JSON.stringify({ ...asked, until: Date.now() + WAITS_MS }));
}

/** What was kept, once; null where nothing was, or long ago. */
export function takeAsked(): Asked | null {
  const text = localStorage.getItem(KEY);
  localStorage.removeItem(KEY);
  if (text === null) return null;
  try {
    const { path, token, until } = JSON.parse(text);
    return Number(until) > Date.now() && (token === null || typeof token === 'string')
      ? askedBy(String(path), token)
      : null;
  } catch {
    return null;
  }
}

/** What a program asks for. From now on only this sign-in may answer. */
export async function getAccess(session: ConsoleSession, resumeState: string): Promise<Access> {
  return answer('POST /console/api/access', { body: { resume_state: resumeState } }, { csrf: session.csrf_token });
}

/** Answers the program; where the browser goes next. Without a workspace the answer is no. */
export async function decideAccess(
  session: ConsoleSession,
  resumeState: string,
  workspace: string | null,
): Promise<string> {
  const body = {
    approved: workspace !== null,
    resume_state: resumeState,
    organisation_id: session.organisation.id,
    ...(workspace === null ? {} : { workspace_id: workspace }),
  };
  return (await answer('POST /v2/oauth/authorize', { body }, { csrf: session.csrf_token })).redirect_uri;
}

export async function getDevice(session: ConsoleSession, userCode: string): Promise<Device> {
  return answer('POST /console/api/device', { body: { user_code: userCode } }, { csrf: session.csrf_token });
}

export async function decideDevice(session: ConsoleSession, userCode: string, approved: boolean): Promise<void> {
  const body = { user_code: userCode, approved };
  await answer('POST /console/api/device/decision', { body }, { csrf: session.csrf_token });
}
