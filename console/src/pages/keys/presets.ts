/** What kinds of keys people make, in place of a list of a hundred rights. */
export interface Preset {
  readonly id: string;
  readonly label: string;
  readonly help: string;
  /** Of the session's own rights, those that the key gets. */
  readonly takes: (scope: string) => boolean;
}

const CALLS = ['completions.write', 'models.list', 'mcp.invoke', 'agents.invoke', 'feedbacks.write', 'prompts.render'];

export const PRESETS: readonly Preset[] = [
  {
    id: 'app',
    label: 'App',
    help: 'Calls models and nothing else: for programs.',
    takes: (scope) => CALLS.includes(scope),
  },
  {
    id: 'ci',
    label: 'CI',
    help: 'Calls models, and changes configs, prompts and guardrails: for pipelines.',
    takes: (scope) => CALLS.includes(scope) || /^(configs|prompts|guardrails)\./.test(scope),
  },
  {
    id: 'read',
    label: 'Read only',
    help: 'Reads logs, analytics and settings; calls nothing: for dashboards.',
    takes: (scope) => /\.(list|read|view)$/.test(scope),
  },
];

/** Rights that no key of a workspace can have. */
const ORGANISATION_ONLY =
  /^(organisation_(?!.*_integrations\.list$)|audit_logs\.|plugins\.|deployments\.|secret_references\.|workspaces\.(create|delete))/;

/** The rights of a preset that the session may hand on to a key of a workspace. */
export const scopesFor = (preset: Preset, own: readonly string[]): string[] =>
  own.filter((scope) => !ORGANISATION_ONLY.test(scope) && preset.takes(scope));
