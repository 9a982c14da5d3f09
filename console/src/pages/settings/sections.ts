/** The sections of the settings: data, so that a setting is a line. */

export interface Option {
  /** Dotted, in body and answer alike. */
  readonly path: string;
  readonly label: string;
  readonly help?: string;
  readonly kind: 'switch' | 'number';
  /** The switch is 0 or 1 in the API. */
  readonly number?: true;
}

export interface Section {
  readonly id: string;
  readonly title: string;
  readonly help: string;
  readonly options: readonly Option[];
}

/** biome-ignore format: an option is a line */
export const SECTIONS: readonly Section[] = [
  {
    id: 'content',
    title: 'Texts of requests',
    help: 'Texts are not stored unless this is on. Guardrails mask them first, and each change is in the audit log.',
    options: [
      { path: 'debug_log', label: 'Keep the texts of requests and answers', help: 'Off: only answers of requests that failed.', kind: 'switch', number: true },
      { path: 'debug_log_sample', label: 'Share of the traces', help: '0 to 1.', kind: 'number' },
      { path: 'bodies_days', label: 'Days that texts stay', help: 'Empty: as long as the installation keeps them.', kind: 'number' },
    ],
  },
  {
    id: 'sign-in',
    title: 'Sign-in',
    help: 'How long somebody stays signed in.',
    options: [
      { path: 'session_settings.max_session_ttl', label: 'Seconds until a new sign-in', help: 'At least 900. Empty: no limit. Sessions that are older end at once.', kind: 'number' },
    ],
  },
  {
    id: 'requests',
    title: 'Requests',
    help: 'What a request may bring along.',
    options: [
      { path: 'data_plane_security_settings.block_inline_config', label: 'Saved configs only', help: 'Requests with a config in their headers are refused.', kind: 'switch' },
      { path: 'cache_max_age', label: 'Longest life of a cached answer, in seconds', help: 'Empty: the default.', kind: 'number' },
    ],
  },
  {
    id: 'user-keys',
    title: 'Keys of users',
    help: 'What rules the API keys that belong to people.',
    options: [
      { path: 'user_api_key_auto_create', label: 'New members get a key', kind: 'switch' },
      { path: 'user_api_key_count', label: 'Most keys of a user in a workspace', help: '-1: any number.', kind: 'number' },
      { path: 'user_api_key_ttl', label: 'Life of a new key in seconds', help: '0: no end.', kind: 'number' },
      { path: 'user_api_key_max_ttl', label: 'Longest life of a key in seconds', help: '0: no limit.', kind: 'number' },
      { path: 'user_api_key_rotation_period', label: 'Days between rotations', help: 'Empty: no rotation.', kind: 'number' },
    ],
  },
  {
    id: 'alerts',
    title: 'Alerts',
    help: 'Sluice watches all requests for these.',
    options: [
      { path: 'alerts.spend_budget', label: 'Dollars in 30 days', help: 'An alert is sent while money is spent much faster. Empty: none.', kind: 'number' },
      { path: 'alerts.error_budget', label: 'Percent of requests that may fail', help: 'An alert is sent while many more do. Empty: none.', kind: 'number' },
      { path: 'alerts.spend_anomalies', label: 'Alert on hours of unusual cost', kind: 'switch' },
    ],
  },
  {
    id: 'security',
    title: 'Who may see and change what',
    help: 'Rights that a role has in every workspace. Taking one away also closes it to the keys of these people.',
    options: [
      { path: 'security_settings.membersViewLogs', label: 'Members see logs', kind: 'switch' },
      { path: 'security_settings.managersViewLogs', label: 'Managers see logs', kind: 'switch' },
      { path: 'security_settings.membersViewLogMetadata', label: 'Members see metadata of logs', kind: 'switch' },
      { path: 'security_settings.managersViewLogMetadata', label: 'Managers see metadata of logs', kind: 'switch' },
      { path: 'security_settings.organisationAdminsViewLogs', label: 'Admins see logs', kind: 'switch' },
      { path: 'security_settings.organisationAdminsViewLogMetadata', label: 'Admins see metadata of logs', kind: 'switch' },
      { path: 'security_settings.membersViewAllData', label: 'Members see requests of all callers', kind: 'switch' },
      { path: 'security_settings.managersViewAllData', label: 'Managers see requests of all callers', kind: 'switch' },
      { path: 'security_settings.membersViewAnalytics', label: 'Members see analytics', kind: 'switch' },
      { path: 'security_settings.managersViewAnalytics', label: 'Managers see analytics', kind: 'switch' },
      { path: 'security_settings.membersViewApiKeys', label: 'Members see API keys', kind: 'switch' },
      { path: 'security_settings.membersWriteApiKeys', label: 'Members change API keys', kind: 'switch' },
      { path: 'security_settings.managersViewApiKeys', label: 'Managers see API keys', kind: 'switch' },
      { path: 'security_settings.managersWriteApiKeys', label: 'Managers change API keys', kind: 'switch' },
      { path: 'security_settings.membersViewConfigs', label: 'Members see configs', kind: 'switch' },
      { path: 'security_settings.membersWriteConfigs', label: 'Members change configs', kind: 'switch' },
      { path: 'security_settings.managersViewConfigs', label: 'Managers see configs', kind: 'switch' },
      { path: 'security_settings.managersWriteConfigs', label: 'Managers change configs', kind: 'switch' },
      { path: 'security_settings.membersViewPrompts', label: 'Members see prompts', kind: 'switch' },
      { path: 'security_settings.membersWritePrompts', label: 'Members change prompts', kind: 'switch' },
      { path: 'security_settings.managersViewPrompts', label: 'Managers see prompts', kind: 'switch' },
      { path: 'security_settings.managersWritePrompts', label: 'Managers change prompts', kind: 'switch' },
      { path: 'security_settings.membersViewGuardrails', label: 'Members see guardrails', kind: 'switch' },
      { path: 'security_settings.membersWriteGuardrails', label: 'Members change guardrails', kind: 'switch' },
      { path: 'security_settings.managersViewGuardrails', label: 'Managers see guardrails', kind: 'switch' },
      { path: 'security_settings.managersWriteGuardrails', label: 'Managers change guardrails', kind: 'switch' },
      { path: 'security_settings.membersViewVirtualKeys', label: 'Members see providers', kind: 'switch' },
      { path: 'security_settings.membersWriteVirtualKeys', label: 'Members change providers', kind: 'switch' },
      { path: 'security_settings.managersViewVirtualKeys', label: 'Managers see providers', kind: 'switch' },
      { path: 'security_settings.managersWriteVirtualKeys', label: 'Managers change providers', kind: 'switch' },
      { path: 'security_settings.managersUpdateWs', label: 'Managers change their workspace', kind: 'switch' },
      { path: 'security_settings.managersWriteWsUsers', label: 'Managers change its members', kind: 'switch' },
      { path: 'security_settings.managersWriteWsIntegrations', label: 'Managers change its integrations', kind: 'switch' },
      { path: 'security_settings.managersWriteWsMcpIntegrations', label: 'Managers change its MCP integrations', kind: 'switch' },
      { path: 'security_settings.managersWriteMcpServers', label: 'Managers change its MCP servers', kind: 'switch' },
    ],
  },
];
