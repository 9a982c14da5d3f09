/**
 * Providers that Sluice does not call, whose settings it takes: accounts of them are stored, and requests and configs may
 * name their settings.
 */
import { text } from '../kernel/text-schema.ts';
import { type Account, account } from './account.ts';
import { AWS_SIGN_IN, awsRegionField, fromAwsVirtualKey } from './aws/account.ts';

export interface UnservedProvider {
  readonly id: string;
  /** Whether accounts can be stored; otherwise only requests and configs name its settings. */
  readonly storable: boolean;
  readonly needsKey: boolean;
  readonly account: Account;
}

const SAGEMAKER_OPTIONS = [
  'custom_attributes',
  'target_model',
  'target_variant',
  'target_container_hostname',
  'inference_id',
  'enable_explanations',
  'inference_component',
  'session_id',
  'model_name',
].map((name) => [`amzn_sagemaker_${name}`, { schema: text(1024, 1) }] as const);

export const UNSERVED: readonly UnservedProvider[] = [
  {
    id: 'sagemaker',
    storable: true,
    needsKey: false,
    account: account(
      { aws_region: awsRegionField, ...Object.fromEntries(SAGEMAKER_OPTIONS), aws_auth_type: AWS_SIGN_IN },
      fromAwsVirtualKey,
    ),
  },
  {
    id: 'workers-ai',
    storable: true,
    needsKey: true,
    account: account({
      workers_ai_account_id: {
        required: true,
        address: true,
        virtualKey: 'workersAiAccountId',
        request: { pinned: true },
      },
    }),
  },
  {
    id: 'cortex',
    storable: true,
    needsKey: true,
    account: account({
      snowflake_account: { required: true, address: true, request: { pinned: true, redirects: true } },
    }),
  },
  {
    id: 'databricks',
    storable: false,
    needsKey: true,
    account: account({ databricks_workspace: { stored: false, request: { redirects: true } } }),
  },
];
