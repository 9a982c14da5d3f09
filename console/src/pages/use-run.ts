import { useEffect, useRef, useState } from 'react';
import { type ChatRequest, getRecord, type RequestRecord, type Session, tryRequest } from '../api/client.ts';
import { follow, type Run } from '../api/run.ts';

/** One request at a time: its progress, what was sent, and the stored record once the gateway has it. */
export function useRun(session: Session, onSignedOut: () => void) {
  const [run, setRun] = useState<Run | null>(null);
  const [sent, setSent] = useState<ChatRequest | null>(null);
  const [record, setRecord] = useState<RequestRecord | null>(null);
  const current = useRef<AbortController | null>(null);
  // Leaving the page ends the request and the wait for its record.
  useEffect(() => () => current.current?.abort(), []);

  const start = (workspaceId: string, request: ChatRequest) => {
    current.current?.abort();
    const abort = new AbortController();
    current.current = abort;
    setSent(request);
    setRecord(null);
    const follows = follow(
      () => tryRequest(session, workspaceId, request, abort.signal),
      (next) => {
        if (current.current === abort) setRun(next);
      },
    );
    void follows.then(async (end) => {
      if (current.current !== abort) return;
      // Without a trace id the answer is the console's own and not the data plane's.
      if (end.status === 401 && end.traceId === null) return onSignedOut();
      const waiting = new AbortController();
      current.current = waiting;
      const found = end.traceId === null ? null : await waitForRecord(end.traceId, waiting.signal);
      if (current.current === waiting) setRecord(found);
    });
  };
  const stop = () => current.current?.abort();
  return { run, sent, record, start, stop };
}

/** The stored record of a request; null when it has not arrived after about six seconds. */
async function waitForRecord(traceId: string, signal: AbortSignal): Promise<RequestRecord | null> {
  for (let wait = 100; wait <= 3200 && !signal.aborted; wait *= 2) {
    await new Promise((resolve) => setTimeout(resolve, wait));
    try {
      const record = await getRecord(traceId, signal);
      if (record) return record;
    } catch {
      // The record is an extra: the answer stands without it.
      return null;
    }
  }
  return null;
}
