/** Tables of alerts: those of usage limits that wait, what is watched of traffic, and deliveries of both. */
import { int, json, nullable, table, text, time } from './column.ts';
import type { AlertKind, LimitOwner, TrafficAlertKind, TrafficBudgets } from './limit-types.ts';

export const ALERT_TABLES = {
  /** Alerts that wait for their audit row: one for each bucket, window and kind. */
  usage_alerts: table(['bucket_id', 'window_no', 'kind'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    bucket_id: text(),
    window_no: int(),
    kind: text<AlertKind>(),
    used: int(),
    created_at: time(),
    /** When its audit row was written. */
    done_at: nullable(time()),
  }),
  /** Alerts on their way to people and programs: one for each alert, channel and recipient. */
  alert_deliveries: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    /** Empty: the alert is of the whole organisation. */
    workspace_id: text(),
    /** Whose limit it is, or the place that is watched. */
    owner_kind: text<LimitOwner | 'organisation'>(),
    owner_id: text(),
    /** Null for an alert of no usage limit. */
    bucket_id: nullable(text()),
    window_no: nullable(int()),
    kind: text<AlertKind | TrafficAlertKind>(),
    channel: text<'webhook' | 'email'>(),
    /** Address or URL. Empty: the alert has no recipient, and is kept to be listed; its `channel` means nothing. */
    recipient: text(),
    /** The alert's facts, as they were when it was raised. */
    body: json<Record<string, unknown>>(),
    tries: int(),
    /** When it is tried next; null once it is delivered or given up. */
    next_at: nullable(time()),
    delivered_at: nullable(time()),
    last_error: nullable(text()),
    created_at: time(),
  }),
  /** Places whose spend and errors are watched (`jobs/alerts/watch-traffic.ts`): one row for each. */
  alert_watches: table(['id'], 'organisation', {
    /** Of the workspace, or of the organisation where all of it is watched. */
    id: text(),
    organisation_id: text(),
    /** Empty: the whole organisation. */
    workspace_id: text(),
    /** As the settings of the place say. */
    budgets: json<TrafficBudgets>(),
    /** What was raised last under a name such as `spend_rate 6`: a time, or the hour of an anomaly. */
    raised: json<Record<string, number>>(),
    created_at: time(),
    last_updated_at: time(),
  }),
};
