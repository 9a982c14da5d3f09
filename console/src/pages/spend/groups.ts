import type { Operations } from '../../../types/api.ts';
import { t } from '../../app/i18n.ts';

export type Row = Operations['GET /v1/analytics/groups/{groupBy}']['answer']['data'][number];

export interface Group {
  /** As the API names it. */
  readonly id: string;
  readonly label: string;
  /** Where a row has its value, and where the name of it. */
  readonly field: keyof Row;
  readonly name?: keyof Row;
  /** Parameter of the page Requests; null where that cannot filter by it. */
  readonly filter: string | null;
}

export const GROUPS: readonly [Group, ...Group[]] = [
  { id: 'workspace', label: 'Workspace', field: 'workspace', name: 'workspace_name', filter: 'ws' },
  { id: 'model', label: 'Model', field: 'model', filter: 'ai_model' },
  // The list by `provider` leaves out requests that none got, and the rows would not add up.
  { id: 'ai_service', label: 'Provider', field: 'ai_service', filter: null },
  { id: 'api_key', label: 'API key', field: 'api_key', name: 'api_key_name', filter: 'api_key_ids' },
  { id: 'user', label: 'User', field: 'user_id', name: 'user_name', filter: 'user_ids' },
  { id: 'operation', label: 'Operation', field: 'operation', filter: 'operation' },
  { id: 'config', label: 'Config', field: 'config', filter: 'configs' },
  { id: 'outcome', label: 'Outcome', field: 'outcome', filter: 'outcome' },
];

/** The name of a row's value; deleted things say so, and rows without one, too. */
export function nameOf(row: Row, group: Group): string {
  const value = row[group.field];
  if (value === null || value === undefined || value === '') return t('none');
  const name = group.name === undefined ? value : row[group.name];
  return typeof name === 'string' && name !== '' ? name : `${String(value)} (${t('deleted')})`;
}
