/** Requests as they come: `GET /v1/logs/tail`, kept to a page's worth, with a pause. */
import { useEffect, useRef, useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { ApiError, stream } from '../../api/client.ts';
import { sseReader } from '../../api/sse.ts';
import { useSession } from '../../shell/session.tsx';

export type Log = Operations['GET /v1/logs']['answer']['data'][number];
type Query = Operations['GET /v1/logs/tail']['input']['query'];

/** Rows that stay: older ones make room. */
const KEPT = 500;
/** New rows are shown this often at most, so that a busy tail leaves the page usable. */
const EVERY_MS = 250;
const RETRY_MS = [1_000, 2_000, 5_000, 15_000];

export interface Tail {
  readonly rows: readonly Log[];
  /** Requests that were not shown: more came in a second than the server sends, or while this was paused. */
  readonly hidden: number;
  readonly state: 'connecting' | 'open' | 'lost';
  /** A refusal, which trying again would not mend. */
  readonly error: ApiError | null;
  readonly paused: boolean;
  readonly pause: () => void;
}

export function useTail(query: NonNullable<Query>): Tail {
  const { end } = useSession();
  const [rows, setRows] = useState<readonly Log[]>([]);
  const [hidden, setHidden] = useState(0);
  const [state, setState] = useState<Tail['state']>('connecting');
  const [error, setError] = useState<ApiError | null>(null);
  const [paused, setPaused] = useState(false);
  const pausing = useRef(false);
  const key = JSON.stringify(query);
  useEffect(() => {
    const abort = new AbortController();
    let waiting: Log[] = [];
    const flush = setInterval(() => {
      if (waiting.length === 0) return;
      const came = waiting;
      waiting = [];
      if (pausing.current) setHidden((before) => before + came.length);
      else setRows((before) => [...came.reverse(), ...before].slice(0, KEPT));
    }, EVERY_MS);
    const read = sseReader((data) => {
      const event = JSON.parse(data) as Partial<Log> & {
        requests?: number | null;
        error?: { message: string; code?: string };
      };
      if (event.error) setError(new ApiError(403, event.error.message));
      else if (event.object === 'log') waiting.push(event as Log);
      else if (event.requests) setHidden((before) => before + (event.requests ?? 0));
    });
    const follow = async () => {
      for (let failures = 0; !abort.signal.aborted; failures++) {
        try {
          const body = await stream('GET /v1/logs/tail', { query: JSON.parse(key) }, { signal: abort.signal });
          setState('open');
          failures = 0;
          const reader = body?.getReader();
          const decoder = new TextDecoder();
          for (;;) {
            const part = await reader?.read();
            if (!part || part.done) break;
            read(decoder.decode(part.value, { stream: true }));
          }
        } catch (cause) {
          if (abort.signal.aborted) return;
          if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500) {
            if (cause.status === 401) end();
            return setError(cause);
          }
        }
        setState('lost');
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS[failures] ?? 15_000));
      }
    };
    setRows([]);
    setHidden(0);
    setError(null);
    setState('connecting');
    void follow();
    return () => {
      abort.abort();
      clearInterval(flush);
    };
  }, [key, end]);
  const pause = () => {
    pausing.current = !pausing.current;
    setPaused(pausing.current);
  };
  return { rows, hidden, state, error, paused, pause };
}
