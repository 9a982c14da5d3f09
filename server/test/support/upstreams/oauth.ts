import { z } from 'zod';
import { type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { sendJson } from '../upstream.ts';

/** A token endpoint of OAuth 2.0 client credentials (RFC 6749 §4.4). */
export interface TokenEndpoint extends StrictUpstream {
  /** Tokens given out, in order. */
  readonly tokens: string[];
  /** Seconds that tokens live; null leaves the field out. */
  lifetime: number | null;
  /** Every call is refused with this. */
  refuse: { readonly status: number; readonly body: unknown } | null;
  /** Answers wait until `release` is called. */
  hold: boolean;
  release(): void;
}

export const CLIENT = { id: 'client-1', secret: 'client-secret-value', scope: 'models.read models.call' } as const;

export async function startTokenEndpoint(): Promise<TokenEndpoint> {
  const tokens: string[] = [];
  let waiting: (() => void)[] = [];
  const upstream = await startStrictUpstream({
    routes: [
      {
        method: 'POST',
        path: /^\/oauth\/token\/\d+$/,
        form: 'urlencoded',
        body: z.strictObject({
          grant_type: z.literal('client_credentials'),
          client_id: z.literal(CLIENT.id),
          client_secret: z.literal(CLIENT.secret),
          scope: z.literal(CLIENT.scope).optional(),
        }),
        answer(_body, response) {
          const { refuse, lifetime } = endpoint;
          const give = () => {
            if (refuse !== null) {
              sendJson(response, refuse.status, refuse.body);
              return;
            }
            tokens.push(`granted-token-${tokens.length + 1}`);
            sendJson(response, 200, {
              access_token: tokens.at(-1),
              token_type: 'Bearer',
              ...(lifetime === null ? {} : { expires_in: lifetime }),
            });
          };
          if (endpoint.hold) waiting.push(give);
          else give();
        },
      },
    ],
    headers: {},
    optional: [],
    error: (_status, message) => ({ error: 'invalid_request', error_description: message }),
  });
  const endpoint = Object.defineProperties(upstream, {
    tokens: { value: tokens },
    lifetime: { value: 3600, writable: true },
    refuse: { value: null, writable: true },
    hold: { value: false, writable: true },
    release: {
      value: () => {
        endpoint.hold = false;
        for (const give of waiting) give();
        waiting = [];
      },
    },
  }) as TokenEndpoint;
  return endpoint;
}
