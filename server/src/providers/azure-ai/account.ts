import { z } from 'zod';
import { text } from '../../kernel/text-schema.ts';
import { type Account, account } from '../account.ts';
import { ANTHROPIC_OPTIONS } from '../anthropic/account.ts';
import { AZURE_FIELDS, fromAzureVirtualKey } from '../azure-openai/account.ts';

const short = text(255, 1);

export const azureAiAccount: Account = account(
  {
    azure_foundry_url: {
      required: true,
      host: true,
      virtualKey: 'azureFoundryUrl',
      request: { redirects: true },
    },
    azure_endpoint_name: { stored: false, config: {}, request: { redirects: true } },
    azure_api_version: { schema: text(30, 1), virtualKey: 'apiVersion', config: { schema: text(30, 1) }, request: {} },
    azure_deployment_name: { schema: short, virtualKey: 'deploymentName', config: {}, request: {} },
    azure_deployment_type: {
      stored: false,
      config: { schema: z.enum(['serverless', 'managed']) },
      request: { own: true },
    },
    azure_region: { stored: false, config: {}, request: { own: true } },
    azure_extra_params: { schema: z.enum(['pass-through', 'drop', 'error']), request: {} },
    ...AZURE_FIELDS,
    ...ANTHROPIC_OPTIONS,
  },
  fromAzureVirtualKey,
);
