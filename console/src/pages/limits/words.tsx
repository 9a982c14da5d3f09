import type { Operations } from '../../../types/api.ts';
import { count, dollars } from '../../app/format.ts';
import { plural, t } from '../../app/i18n.ts';

export type Limit = Operations['GET /v1/limits']['answer']['data'][number];

const MICROS = 1_000_000;

/** An amount of a limit with its unit. The API writes cost in dollars, which are whole micro-dollars. */
export function amount(type: Limit['type'], value: number): string {
  if (type === 'cost') return dollars(Math.round(value * MICROS));
  return type === 'tokens'
    ? plural(value, { one: '{n} token', other: '{n} tokens' })
    : plural(value, { one: '{n} request', other: '{n} requests' });
}

/** The same without a unit, where the limit beside it has one. */
export const bare = (type: Limit['type'], value: number): string =>
  type === 'cost' ? dollars(Math.round(value * MICROS)) : count(value);

const PERIODS: Readonly<Record<string, string>> = {
  monthly: 'each month',
  weekly: 'each week',
  rps: 'a second',
  rpm: 'a minute',
  rph: 'an hour',
  rpd: 'a day',
  rpw: 'a week',
};

/** `each month`; `in all` for what never resets. */
export function periodOf(period: string | null): string {
  if (period === null) return t('in all');
  const days = /^days:(\d+)$/.exec(period)?.[1];
  return days === undefined ? t(PERIODS[period] ?? period) : t('every {n} days', { n: Number(days) });
}

const KINDS: Readonly<Record<Limit['kind'], string>> = {
  key: 'API key',
  workspace: 'Workspace',
  provider: 'Provider',
  'virtual-key': 'Virtual key',
  integration: 'Account',
  policy: 'Policy',
};

export const kindOf = (limit: Limit): string => t(KINDS[limit.kind]);

const SHARED: Readonly<Record<string, string>> = {
  workspace_id: 'all requests together',
  organisation_id: 'all requests together',
  api_key: 'each API key',
  'metadata._user': 'each user',
  model: 'each model',
  provider: 'each provider',
  virtual_key: 'each provider',
  config: 'each config',
};

/** Who shares a limit: `each API key`. */
export const sharedBy = ({ group_by: groups }: Pick<Limit, 'group_by'>): string =>
  groups.length === 0
    ? t('all its requests')
    : groups.map(({ key }) => (SHARED[key] ? t(SHARED[key]) : key)).join(' × ');

/** Which requests a policy selects, as far as it is not all of them. */
export const selects = ({ conditions }: Pick<Limit, 'conditions'>): string =>
  conditions
    .flatMap(({ key, value, excludes }) => {
      const values = [value ?? []].flat().filter((one) => one !== '*');
      const not = [excludes ?? []].flat();
      if (key === 'workspace_id') return [];
      return [
        ...(values.length > 0 ? [`${key} = ${values.join(', ')}`] : []),
        ...(not.length > 0 ? [`${key} ≠ ${not.join(', ')}`] : []),
      ];
    })
    .join('; ');

/** Used and reserved of a limit as a bar; its numbers are beside it. */
export function Meter({ limit }: { limit: Limit }) {
  if (limit.used === null) return null;
  const part = (value: number) => (limit.limit === 0 ? 100 : Math.min(100, (value / limit.limit) * 100));
  const used = part(limit.used);
  const reserved = Math.min(100 - used, part(limit.reserved ?? 0));
  const warns = limit.alert_threshold !== null && limit.used >= limit.alert_threshold;
  const tone = limit.status === 'exhausted' ? 'bad' : warns || used >= 80 ? 'warn' : 'ok';
  return (
    <span className="meter" aria-hidden="true">
      <svg viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">
        <rect className={`fill ${tone}`} width={used} height={1} />
        <rect className="fill quiet" x={used} width={reserved} height={1} />
      </svg>
    </span>
  );
}
