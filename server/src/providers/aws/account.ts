/** Settings of AWS accounts, for every provider that signs in to AWS. */
import { z } from 'zod';
import { text } from '../../kernel/text-schema.ts';
import type { Account, AccountField, AccountFields } from '../account.ts';
import { REGION } from './settings.ts';

/** Becomes part of a host name. */
export const awsRegionField: AccountField = {
  schema: text(255, 1).regex(REGION, { error: 'must be the name of an AWS region, such as eu-central-1' }),
  required: true,
  address: true,
  virtualKey: 'awsRegion',
  config: {},
  request: { pinned: true },
};

const accessKeyId: AccountField = {
  secret: true,
  virtualKey: 'awsAccessKeyId',
  config: { schema: text(255, 1) },
  request: { own: true },
};
const secretAccessKey: AccountField = {
  secret: true,
  virtualKey: 'awsSecretAccessKey',
  config: {},
  request: { own: true },
};

/** `aws_auth_type`, with the fields of each way. */
export const AWS_SIGN_IN: AccountField = {
  required: true,
  virtualKey: 'awsAuthType',
  request: { own: true },
  choices: {
    accessKey: {
      needsKey: false,
      fields: {
        aws_access_key_id: { ...accessKeyId, required: true },
        aws_secret_access_key: { ...secretAccessKey, required: true },
      },
    },
    assumedRole: {
      needsKey: false,
      fields: {
        aws_role_arn: {
          schema: text(2048, 1),
          required: true,
          virtualKey: 'awsRoleArn',
          request: { own: true },
        },
        aws_external_id: { virtualKey: 'awsExternalId', request: { own: true } },
        // Who assumes the role; without them the server itself does.
        aws_access_key_id: accessKeyId,
        aws_secret_access_key: secretAccessKey,
      },
    },
    serviceRole: { needsKey: false, fields: {} },
    apiKey: { needsKey: true, fields: {} },
  },
};

/** Settings of an AWS account whose files lie in S3. */
export const AWS_FIELDS: AccountFields = {
  aws_auth_type: AWS_SIGN_IN,
  aws_region: awsRegionField,
  aws_session_token: { schema: z.string().min(1).max(8192), secret: true, config: {}, request: { own: true } },
  /** The only bucket that files of this account may lie in; otherwise each request names one. */
  aws_s3_bucket: { schema: z.string().min(1).max(63) },
  /** Where S3 and STS are reached when the account has a custom host: private endpoints, compatible stores. */
  aws_s3_endpoint: { host: true },
  aws_sts_endpoint: { host: true },
  aws_bedrock_model: { stored: false, request: {} },
};

/** The way of signing in follows from what is given. */
export const fromAwsVirtualKey: NonNullable<Account['fromVirtualKey']> = (settings, hasKey) => {
  if (settings.aws_auth_type !== undefined) return;
  const signsItself = settings.aws_access_key_id !== undefined || settings.aws_secret_access_key !== undefined;
  if (signsItself) settings.aws_auth_type = 'accessKey';
  else if (settings.aws_role_arn !== undefined) settings.aws_auth_type = 'assumedRole';
  else settings.aws_auth_type = hasKey ? 'apiKey' : 'accessKey';
};
