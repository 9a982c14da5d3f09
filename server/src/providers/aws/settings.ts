import { SluiceError } from '../../kernel/errors.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';
import type { AccessContext } from '../training.ts';

/** Goes into host names, hence the pattern. */
export const REGION = /^[a-z]{2}(?:-[a-z]+)+-[0-9]$/;

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
  /^(?:[a-z0-9.-]+\.)?(?:bedrock|bedrock-runtime|s3|secretsmanager|sts)(?:-fips)?\.[a-z]{2}(?:-[a-z]+)+-[0-9]\.(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)$/;

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
