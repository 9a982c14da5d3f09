/** What an alert of a usage limit says, to programs and to people. */
import { shownAmount } from '../../limits/ledger/limit-spec.ts';
import type { Mail } from '../../mail/mailer.ts';
import type { Row } from '../../store/schema.ts';
import { minute, oneLine } from './mail-text.ts';

type Bucket = Row<'usage_buckets'>;
type Alert = Row<'usage_alerts'>;

/** The body of a webhook. Amounts: US dollars, tokens or requests, as `limit.type` says. */
export interface AlertEvent {
  readonly type: `usage_limit.${Alert['kind']}`;
  /** When the alert was raised, ISO 8601. */
  readonly timestamp: string;
  readonly data: {
    readonly organisation_id: string;
    readonly workspace_id: string;
    readonly workspace_slug: string | null;
    readonly owner: { readonly kind: Bucket['owner_kind']; readonly id: string; readonly name: string };
    /** What the limit counts for, `api_key:…` or `metadata._user:alice`. */
    readonly value_key: string;
    readonly limit: {
      readonly type: Bucket['type'];
      readonly current_usage: number;
      readonly credit_limit: number;
      readonly alert_threshold: number | null;
      /** Requests of the window whose price is not known; they are not in `current_usage`. */
      readonly unpriced_requests: number;
      readonly window: number;
      readonly resets_at: string | null;
    };
    readonly console_url: string;
  };
}

export function alertEvent(alert: Alert, bucket: Bucket, workspaceSlug: string | null, publicUrl: string): AlertEvent {
  const { type } = bucket;
  const shown = (amount: number) => shownAmount(type, amount);
  const present = alert.window_no === bucket.window_no;
  return {
    type: `usage_limit.${alert.kind}`,
    timestamp: new Date(alert.created_at).toISOString(),
    data: {
      organisation_id: bucket.organisation_id,
      workspace_id: bucket.workspace_id,
      workspace_slug: workspaceSlug,
      owner: { kind: bucket.owner_kind, id: bucket.owner_id, name: bucket.label },
      value_key: bucket.value_key,
      limit: {
        type,
        current_usage: shown(alert.used),
        credit_limit: shown(bucket.credit_limit),
        alert_threshold: bucket.alert_threshold === null ? null : shown(bucket.alert_threshold),
        unpriced_requests: present ? bucket.unpriced : 0,
        window: alert.window_no,
        resets_at: !present || bucket.resets_at === null ? null : new Date(bucket.resets_at).toISOString(),
      },
      console_url: `${publicUrl}/console/`,
    },
  };
}

const OWNERS: Readonly<Record<Bucket['owner_kind'], string>> = {
  key: 'API key',
  workspace: 'workspace',
  provider: 'provider',
  'virtual-key': 'virtual key',
  integration: 'integration',
  policy: 'policy',
  token: 'caller',
};

/** What has happened: the line of the subject, and the sentence after "The usage limit of …". */
const NEWS: Readonly<Record<Alert['kind'], readonly [string, string]>> = {
  threshold: ['Usage limit near its end', 'has crossed its alert threshold.'],
  exhausted: ['Usage limit exhausted', 'is used up. Requests under it are refused until it resets or is raised.'],
  unpriced: [
    'Requests of unknown price',
    'served requests whose price is unknown. Their cost is not in the amount used. Give the model a price, or set unpriced to deny.',
  ],
};

/** @param id of the delivery */
export function alertMail({ type, timestamp, data }: AlertEvent, id: string, to: string): Mail {
  const { owner, limit } = data;
  const [subject, sentence] = NEWS[type.slice('usage_limit.'.length) as Alert['kind']];
  const named = `${OWNERS[owner.kind]} "${oneLine(owner.name)}"`;
  const unit = limit.type === 'cost' ? 'US dollars' : limit.type;
  const lines = [
    ['Used', `${limit.current_usage} ${unit}`],
    ['Limit', `${limit.credit_limit} ${unit}`],
    ...(limit.alert_threshold === null ? [] : [['Alert at', `${limit.alert_threshold} ${unit}`]]),
    ...(limit.unpriced_requests === 0 ? [] : [['Of unknown price', `${limit.unpriced_requests} requests`]]),
    ['Resets', limit.resets_at === null ? 'not by itself' : minute(limit.resets_at)],
    ['Counted for', `${oneLine(data.value_key)} (as the requests say)`],
    ['Workspace', oneLine(data.workspace_slug ?? data.workspace_id)],
    ['Since', minute(timestamp)],
  ].map(([name, value]) => `${`${name}:`.padEnd(18)}${value}`);
  return {
    id,
    to,
    subject: `${subject}: ${named}`.slice(0, 200),
    text: [`The usage limit of ${named} ${sentence}`, '', ...lines, '', `Console: ${data.console_url}`, ''].join('\n'),
  };
}
