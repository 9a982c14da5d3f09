import type { Row } from '../schema.ts';

/** A session of `user` with a family of tokens that has one refresh token, and a passkey. */
export function sessionRows(
  name: string,
  own: { readonly organisation_id: string },
  user: string,
  at: number,
): { [N in 'console_sessions' | 'session_families' | 'session_tokens' | 'passkeys']: Row<N> } {
  return {
    console_sessions: {
      digest: `${name}-session`,
      ...own,
      user_id: user,
      kind: 'session',
      expires_at: at,
      created_at: at,
      client_id: null,
      auth_time: null,
      issuer: null,
      subject: null,
      sid: null,
      id_token: null,
      user_agent: null,
      browser: null,
    },
    session_families: { id: `${name}-family`, ...own, session: `${name}-session`, created_at: at },
    session_tokens: {
      id: `${name}-token`,
      ...own,
      family_id: `${name}-family`,
      kind: 'refresh',
      digest: name,
      expires_at: at,
      used_at: null,
      created_at: at,
    },
    passkeys: {
      id: `${name}-passkey`,
      ...own,
      user_id: user,
      name: 'Laptop',
      public_key: 'a2V5',
      counter: 0,
      transports: ['internal'],
      last_used_at: null,
      created_at: at,
    },
  };
}
