/** What an organisation decides for all of its workspaces. */
import type { Resource } from '../../define.ts';
import { organisationDefault, organisationGuardrails } from '../../guardrails/rules.ts';
import { organisationDefaults } from './defaults.ts';
import { settings } from './settings.ts';
import { ssoClients } from './sso-clients/index.ts';
import { makeWebhookSecret } from './webhook-secret.ts';

export const organisation: Resource = {
  actions: [
    ...settings(),
    makeWebhookSecret,
    ...ssoClients.actions,
    ...organisationDefaults({ organisationGuardrails }),
  ],
  refers: [{ to: 'guardrails', find: organisationDefault }],
};
