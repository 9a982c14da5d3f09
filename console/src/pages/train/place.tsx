/** Where files, batches and jobs are: in one workspace, kept by Sluice or at a provider. */
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { type Headers, useApi, useCursorList } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useOneWorkspace, useUrl } from '../../shell/url-state.ts';
import { ended } from './words.tsx';

/** Sluice itself. */
export const KEPT = 'gateway';

/** The workspace and the keeper that the address names, as headers of calls. */
export function usePlace() {
  const workspace = useOneWorkspace();
  const at = useUrl().get('at') || KEPT;
  const headers: Headers = { 'x-gateway-workspace': workspace?.id ?? '', 'x-gateway-provider': at };
  return { workspace, at, headers };
}

/** Providers of the workspace. */
export function useProviders() {
  const workspace = useOneWorkspace();
  const input = { query: { workspace_id: workspace?.id ?? '', page_size: 100 } };
  return useApi('GET /v1/providers', input, { enabled: workspace !== null });
}

/** Chooses who keeps the objects of the page. */
export function PlacePicker() {
  const { set } = useUrl();
  const { at } = usePlace();
  const providers = useProviders();
  return (
    <label className="inline-field">
      <span>{t('Kept at')}</span>{' '}
      <select value={at} onChange={(event) => set({ at: event.target.value === KEPT ? null : event.target.value })}>
        <option value={KEPT}>Sluice</option>
        {(providers.data?.data ?? []).map(({ slug }) => (
          <option key={slug} value={`@${slug}`} translate="no">
            @{slug}
          </option>
        ))}
      </select>
    </label>
  );
}

type Listed = 'GET /v1/files' | 'GET /v1/batches' | 'GET /v1/fine_tuning/jobs';
const PAGE = 100;
/** Between two looks at a list with something under way. */
const LIST_PAUSE = 5_000;

/** Objects of the place, newest first. */
export function useObjects<K extends Listed>(operation: K, query: Readonly<Record<string, string>> = {}) {
  type Row = Operations[K]['answer']['data'][number];
  const { headers, workspace } = usePlace();
  return useCursorList<Row, { data: Row[]; next_cursor: string | null }>(
    [operation, query, headers],
    async (after, signal) => {
      const input = { query: { ...query, limit: PAGE, ...(after !== undefined && { after }) } };
      const found = (await answer(operation, input as Operations[K]['input'], { signal, headers })) as {
        data: Row[];
        has_more: boolean;
      };
      return { data: found.data, next_cursor: found.has_more ? (found.data.at(-1)?.id ?? null) : null };
    },
    {
      enabled: workspace !== null,
      pollAfter: (rows) => (rows.some(({ status }) => !ended(status)) ? LIST_PAUSE : false),
    },
  );
}

/** How long to wait before the next look at something that is under way for so many seconds. */
export const pause = (createdAt: number): number => (Date.now() / 1000 - createdAt < 60 ? 2_000 : 15_000);
