/**
 * Fields of a line. A request, an organisation, a workspace and a key are named by the words that the access log and the
 * records have (`request_id`, `organisation_id`, `workspace_id`, `api_key_id`), so that one search finds all lines.
 */
export type LogFields = Readonly<Record<string, unknown>> & {
  readonly request?: never;
  readonly organisation?: never;
  readonly workspace?: never;
};

/** The operational log. Values that carry request content do not belong here; secrets print as `***`. */
export interface Log {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
}

export const silentLog: Log = { debug() {}, info() {}, warn() {}, error() {} };
