import { t } from '../../app/i18n.ts';
import type { Filter } from '../../ui/filters.tsx';
import { OUTCOMES } from './outcome.tsx';

/** Filters of `GET /v1/logs`, by their names there. */
export const FILTERS: readonly Filter[] = [
  {
    param: 'outcome',
    label: t('Outcome'),
    options: OUTCOMES.map(({ id, label }) => ({ value: id, label: t(label) })),
  },
  { param: 'status_code', label: t('Status'), hint: t('429, or several: 429,503') },
  { param: 'ai_model', label: t('Model'), hint: t('As the provider names it') },
  { param: 'virtual_keys', label: t('Provider'), hint: t('Slug of the provider') },
  { param: 'api_key_ids', label: t('Id of the API key') },
  { param: 'user_ids', label: t('Id of the user') },
  { param: 'configs', label: t('Config'), hint: t('Slug of the config') },
  { param: 'error_code', label: t('Error code') },
  { param: 'trace_id', label: t('Trace id') },
  { param: 'metadata', label: t('Metadata'), hint: t('A JSON object, for example {"team":"search"}') },
];
