import { z } from 'zod';
import { SluiceError } from '../../kernel/errors.ts';
import type { Credentials } from '../provider.ts';
import { address, textSetting } from '../settings.ts';
import type { AccessContext } from '../training.ts';

/** Goes into host names, hence the pattern. */
export const REGION = /^[a-z]{2}(?:-[a-z]+)+-[0-9]$/;

const endpoint = z.url({ protocol: /^https?$/ }).max(2048);
const text = (max: number) => z.string().min(1).max(max);

/** Settings of an AWS account; all are optional here, because which are needed depends on `aws_auth_type`. */
export const AWS_SETTINGS = {
  aws_auth_type: address(z.enum(['accessKey', 'assumedRole', 'serviceRole', 'apiKey']).optional()),
  aws_region: address(text(255).optional()),
  aws_access_key_id: text(255).optional(),
  aws_secret_access_key: text(1024).optional(),
  aws_session_token: text(8192).optional(),
  aws_role_arn: text(2048).optional(),
  aws_external_id: text(1224).optional(),
  /** The only bucket that files of this account may lie in; otherwise each request names one. */
  aws_s3_bucket: text(63).optional(),
  /** Where S3 and STS are reached when the account has a custom host: private endpoints, compatible stores. */
  aws_s3_endpoint: address(endpoint.optional()),
  aws_sts_endpoint: address(endpoint.optional()),
} as const satisfies z.ZodRawShape;

export const AWS_SECRET_SETTINGS: readonly string[] = [
  'aws_access_key_id',
  'aws_secret_access_key',
  'aws_session_token',
];

/** The region of an account, or null when it has none that may go into a host name. */
export function regionOf(credentials: Credentials): string | null {
  const region = textSetting(credentials, 'aws_region');
  return region !== undefined && REGION.test(region) ? region : null;
}

export function awsRegion(context: AccessContext): string {
  const region = regionOf(context.credentials);
  if (region !== null) return region;
  const given = textSetting(context.credentials, 'aws_region');
  throw new SluiceError(
    'invalid_request',
    given === undefined
      ? 'The AWS account has no region; set aws_region, or send x-gateway-aws-region.'
      : `aws_region ${JSON.stringify(given.slice(0, 60))} is no AWS region; use a name such as eu-central-1.`,
    { param: 'aws_region' },
  );
}

/**
 * The services that accounts sign for, in any region and partition, also by private endpoints and over IPv6. Not all of
 * `amazonaws.com`: machines, balancers and functions of customers have names there too.
 */
export const AWS_HOSTS =
  /^(?:[a-z0-9.-]+\.)?(?:bedrock|bedrock-runtime|s3|sts)(?:-fips)?\.[a-z]{2}(?:-[a-z]+)+-[0-9]\.(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)$/;

/** `amazonaws.com`, or that of the China regions. */
export const domainOf = (region: string): string => (region.startsWith('cn-') ? 'amazonaws.com.cn' : 'amazonaws.com');

/** Base URL of a service beside the account's own: its own setting, else the public host of the region. */
export function endpointOf(service: 's3' | 'sts', context: AccessContext): string {
  const setting = `aws_${service}_endpoint`;
  const own = textSetting(context.credentials, setting);
  if (own !== undefined) return own.replace(/\/+$/, '');
  if (context.customHost) {
    throw new SluiceError(
      'invalid_request',
      `This account has a custom host, so ${service.toUpperCase()} is not looked for at the public one; set ${setting} beside custom_host.`,
      { param: setting },
    );
  }
  const region = awsRegion(context);
  return `https://${service}.${region}.${domainOf(region)}`;
}
