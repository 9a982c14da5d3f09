/** All versions of a config, what each one changed, and the way back. */
import { useState } from 'react';
import { useApi, useWrite } from '../../api/queries.ts';
import { dateTime } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Diff } from '../../ui/diff.tsx';
import { Badge } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import type { Saved, Version } from './words.ts';

const LIST = 'GET /v1/configs/{slug}/versions';
const RESTORE = 'POST /v1/configs/{slug}/versions/{versionId}/restore';

export function Versions({ config }: { config: Saved }) {
  const can = useCan();
  const zone = useZone();
  const [open, setOpen] = useState<string | null>(null);
  const path = { slug: config.slug };
  const versions = useApi(LIST, { path, query: { page_size: 100 } });
  const restore = useWrite(RESTORE);
  const rows = versions.data?.data ?? [];
  const isNow = (row: Version) => row.version_id === config.version_id;
  return (
    <div className="stack">
      <div className="toolbar">
        <span className="muted">{t('Newest first. To restore one saves it again as the newest.')}</span>
        <AsCurl call={{ operation: LIST, path }} />
      </div>
      {restore.error && <Failure error={restore.error} />}
      {versions.error && <Failure error={versions.error} onRetry={() => void versions.refetch()} />}
      {!versions.data && !versions.error && <Loading what={t('versions')} rows={3} />}
      <ul className="plain-list versions">
        {rows.map((row, at) => (
          <li key={row.version_id} className="version">
            <div className="row wrap">
              <strong>{dateTime(row.last_updated_at, zone)}</strong>
              {isNow(row) && <Badge tone="ok">{t('in use')}</Badge>}
              <code className="muted">{row.version_id}</code>
              <span className="spacer" />
              <button
                type="button"
                className="button small"
                aria-expanded={open === row.version_id}
                onClick={() => setOpen(open === row.version_id ? null : row.version_id)}
              >
                {t('What changed')}
              </button>
              {!isNow(row) && can('configs.update') && (
                <button
                  type="button"
                  className="button small"
                  aria-label={t('Restore {name}', { name: row.version_id })}
                  onClick={() => restore.mutate({ path: { ...path, versionId: row.version_id } })}
                >
                  {t('Restore')}
                </button>
              )}
            </div>
            {open === row.version_id && <Diff before={rows[at + 1]?.config ?? {}} after={row.config} />}
          </li>
        ))}
      </ul>
    </div>
  );
}
