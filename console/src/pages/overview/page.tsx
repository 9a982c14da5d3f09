/** Overview: how it goes, what needs attention, what has changed; on the first run, what comes first. */
import { useState } from 'react';
import { useApi } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useOneWorkspace, useRange, useReach } from '../../shell/url-state.ts';
import { PageHead } from '../../ui/page.tsx';
import { RangePicker } from '../../ui/range.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { FirstRequest } from '../first-request.tsx';
import { Attention } from './attention.tsx';
import { Checklist } from './checklist.tsx';
import { Figures } from './figures.tsx';
import { WhatChanged } from './what-changed.tsx';

const FIRST = 'Make your first request';

export function Page() {
  const can = useCan();
  const workspace = useOneWorkspace();
  if (!can('logs.list') || workspace === null) return <FirstRequest title={t(FIRST)} />;
  return <WithLogs workspaceId={workspace.id} />;
}

function WithLogs({ workspaceId }: { workspaceId: string }) {
  const range = useRange('24h');
  const reach = useReach();
  const can = useCan();
  const { data, error, refetch } = useApi('GET /v1/logs', { query: { workspace_id: workspaceId, limit: 1 } });
  // Decided once: the page does not change under somebody who reads their first answer.
  const [firstRun, setFirstRun] = useState<boolean | null>(null);
  if (firstRun === null && data) setFirstRun(data.data.length === 0);
  if (firstRun === null) {
    return (
      <>
        <PageHead title={t('Overview')} />
        {error ? <Failure error={error} onRetry={() => void refetch()} /> : <Loading what={t('the overview')} />}
      </>
    );
  }
  if (firstRun) {
    return (
      <FirstRequest title={t(FIRST)}>
        <Checklist workspaceId={workspaceId} requested={(data?.data.length ?? 0) > 0} />
      </FirstRequest>
    );
  }
  return (
    <>
      <PageHead
        title={t('Overview')}
        purpose={t('How it goes, what needs attention, and what has changed.')}
        actions={<RangePicker range={range} />}
      />
      {reach !== null && can('analytics.view') && <Figures reach={reach} range={range} />}
      <div className="columns">
        <Attention workspaceId={workspaceId} />
        {can('audit_logs.list') && <WhatChanged range={range} />}
      </div>
    </>
  );
}
