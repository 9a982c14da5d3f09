import { useState } from 'react';
import { useApi } from '../../api/queries.ts';
import { useCan } from '../../shell/session.tsx';
import { useOneWorkspace } from '../../shell/url-state.ts';

const DAY_MS = 86_400_000;

export interface Figures {
  readonly requests: number;
  /** Percent; null without a request. */
  readonly success: number | null;
  /** Milliseconds, of the slowest of the providers. */
  readonly p95: number | null;
  /** Refused with 429. */
  readonly limited: number;
}

/** What providers of the workspace did in the last 24 hours, by their slugs. Nothing for who may not see figures. */
export function useLastDay() {
  const workspace = useOneWorkspace();
  const can = useCan();
  const [now] = useState(() => Date.now());
  const range = {
    workspace_id: workspace?.id ?? '',
    time_of_generation_min: new Date(now - DAY_MS).toISOString(),
    time_of_generation_max: new Date(now).toISOString(),
  };
  const path = { groupBy: 'virtual_key' } as const;
  const enabled = workspace !== null && can('analytics.view');
  const columns = 'requests,success_rate,p95_latency';
  const all = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    { path, query: { ...range, columns, page_size: 1000 } },
    { enabled },
  );
  const limited = useApi(
    'GET /v1/analytics/groups/{groupBy}',
    { path, query: { ...range, status_code: '429', page_size: 1000 } },
    { enabled },
  );
  const of = (slugs: readonly string[]): Figures => {
    const mine = (all.data?.data ?? []).filter((row) => slugs.includes(String(row.virtual_key)));
    const requests = mine.reduce((sum, row) => sum + row.requests, 0);
    const good = mine.reduce((sum, row) => sum + row.requests * Number(row.success_rate ?? 0), 0);
    return {
      requests,
      success: requests === 0 ? null : good / requests,
      p95: mine.length === 0 ? null : Math.max(...mine.map((row) => Number(row.p95_latency ?? 0))),
      limited: (limited.data?.data ?? [])
        .filter((row) => slugs.includes(String(row.virtual_key)))
        .reduce((sum, row) => sum + row.requests, 0),
    };
  };
  return { of };
}
