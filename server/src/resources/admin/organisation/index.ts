/** What an organisation decides for all of its workspaces. */
import { organisationGuardrails } from '../../guardrails/rules.ts';
import type { AnyAction } from '../../resource.ts';
import { organisationDefaults } from './defaults.ts';
import { read, update } from './settings.ts';
import { makeWebhookSecret } from './webhook-secret.ts';

export const organisation: readonly AnyAction[] = [
  read,
  update,
  makeWebhookSecret,
  ...organisationDefaults({ organisationGuardrails }),
];
