/** What an alert of traffic says, to programs and to people. */
import type { Mail } from '../../mail/mailer.ts';
import type { TrafficAlertKind } from '../../store/schema.ts';
import { minute, oneLine } from './mail-text.ts';

/** A budget that is used much too fast. */
export interface BurnFacts {
  /** The long range and the short one, hours and minutes; null: there is no short one. */
  readonly hours: number;
  readonly short_minutes: number | null;
  /** How many times as fast as the budget allows, and from when on an alert is sent. */
  readonly rate: number;
  readonly alert_above: number;
  /** Of the long range: US dollars, requests, and those that failed. */
  readonly spent: number;
  readonly requests: number;
  readonly failed: number;
  /** US dollars in 30 days, or percent of the requests that may fail. */
  readonly budget: number;
}

/** An hour that costs more or less than it usually does, in US dollars. */
export interface AnomalyFacts {
  /** When the hour begins, ISO 8601. */
  readonly hour: string;
  readonly direction: 'above' | 'below';
  readonly spent: number;
  /** The median of the same hour in the four weeks before. */
  readonly usual: number;
}

export type TrafficFacts = { readonly burn_rate: BurnFacts } | { readonly anomaly: AnomalyFacts };

/** The body of a webhook. */
export interface TrafficEvent {
  readonly type: `traffic.${TrafficAlertKind}`;
  /** When the alert was raised, ISO 8601. */
  readonly timestamp: string;
  readonly data: TrafficFacts & {
    readonly organisation_id: string;
    /** Null: the whole organisation. */
    readonly workspace_id: string | null;
    readonly workspace_slug: string | null;
    readonly console_url: string;
  };
}

const SUBJECTS: Readonly<Record<TrafficAlertKind, string>> = {
  spend_rate: 'Budget is spent too fast',
  error_rate: 'Too many requests fail',
  spend_anomaly: 'Unusual spend',
};

const dollars = (amount: number) => `${amount} US dollars`;
const span = (hours: number) => (hours === 1 ? 'hour' : hours > 24 ? `${hours / 24} days` : `${hours} hours`);

/** @param id of the delivery */
export function trafficMail({ type, timestamp, data }: TrafficEvent, id: string, to: string): Mail {
  const kind = type.slice('traffic.'.length) as TrafficAlertKind;
  const place =
    data.workspace_id === null ? 'the organisation' : `workspace ${oneLine(data.workspace_slug ?? data.workspace_id)}`;
  const [sentence, facts] =
    'burn_rate' in data ? burnText(kind, place, data.burn_rate) : anomalyText(place, data.anomaly);
  const lines = [...facts, ['Since', minute(timestamp)] as const].map(
    ([name, value]) => `${`${name}:`.padEnd(18)}${value}`,
  );
  return {
    id,
    to,
    subject: `${SUBJECTS[kind]}: ${place}`.slice(0, 200),
    text: [sentence, '', ...lines, '', `Console: ${data.console_url}`, ''].join('\n'),
  };
}

type Text = readonly [string, readonly (readonly [string, string])[]];

function burnText(kind: TrafficAlertKind, place: string, burn: BurnFacts): Text {
  const range = `Last ${span(burn.hours)}`;
  if (kind === 'spend_rate') {
    return [
      `The spend of ${place} uses its budget ${burn.rate} times as fast as it may.`,
      [
        [range, dollars(burn.spent)],
        ['Budget', `${dollars(burn.budget)} in 30 days`],
      ],
    ];
  }
  return [
    `Of the requests of ${place}, ${burn.rate} times as many fail as may.`,
    [
      [range, `${burn.failed} of ${burn.requests} requests failed`],
      ['Budget', `${burn.budget} % of the requests`],
    ],
  ];
}

function anomalyText(place: string, { hour, direction, spent, usual }: AnomalyFacts): Text {
  return [
    `An hour of ${place} costs much ${direction === 'above' ? 'more' : 'less'} than usual.`,
    [
      ['Hour', minute(hour)],
      ['Spent', dollars(spent)],
      ['Usual', `${dollars(usual)}, by the four weeks before`],
    ],
  ];
}
