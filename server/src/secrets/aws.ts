/** AWS Secrets Manager. */
import { SluiceError } from '../kernel/errors.ts';
import { Secret } from '../kernel/secret.ts';
import { awsKeys } from '../providers/aws/credentials.ts';
import { awsFailure } from '../providers/aws/errors.ts';
import { domainOf } from '../providers/aws/settings.ts';
import { signed } from '../providers/aws/sign.ts';
import type { AdapterAnswer, AdapterRequest } from '../providers/training.ts';
import type { SecretContent, SecretPlace } from '../resources/secret-references/manager.ts';
import { regionOfArn } from '../resources/secret-references/managers.ts';
import type { Access } from './access.ts';
import { codeIn, failed, ManagerError, objectIn } from './problem.ts';

const adviceFor = (region: string) => ({
  missing: `There is no such secret in the region ${region}, or it has no current version: check secret_path, and set aws_region to the region that the secret lies in.`,
  denied: 'Check that the identity may do secretsmanager:GetSecretValue on it, and kms:Decrypt with its key.',
});
const MISSING = new Set(['ResourceNotFoundException', 'InvalidRequestException']);
const DENIED = new Set([
  'AccessDeniedException',
  'UnrecognizedClientException',
  'InvalidSignatureException',
  'ExpiredTokenException',
  'DecryptionFailure',
]);

/** The region of a secret: that of its ARN, else of the account, else of the server itself. */
function regionOf(access: Access): string {
  const region = regionOfArn(access.place.path) ?? access.field('aws_region') ?? access.ambient?.variable('AWS_REGION');
  if (region !== undefined && region !== '') return region;
  throw new ManagerError('needs a region', 'Set aws_region, or name the secret by its ARN.');
}

/** Signed as who the reference says, with the `ExternalId` that keeps one organisation from the roles of another. */
export const awsPlace = (place: SecretPlace): SecretPlace =>
  place.auth.aws_auth_type !== 'assumedRole' || place.auth.aws_external_id !== undefined
    ? place
    : { ...place, auth: { ...place.auth, aws_external_id: `sluice:${place.organisationId}` } };

export async function readAws(access: Access): Promise<SecretContent> {
  const region = regionOf(access);
  const url = new URL(`https://secretsmanager.${region}.${domainOf(region)}/`);
  // The role is assumed where the secret lies.
  const context = {
    ...access,
    credentials: { key: null, settings: { ...access.credentials.settings, aws_region: region } },
  };
  const keys = await awsKeys(context, url.origin);
  const request = {
    method: 'POST' as const,
    url,
    headers: ['content-type', 'application/x-amz-json-1.1', 'x-amz-target', 'secretsmanager.GetSecretValue'],
    body: Buffer.from(JSON.stringify({ SecretId: access.place.path, VersionStage: 'AWSCURRENT' })),
  };
  const advice = adviceFor(region);
  const answer = await called(
    access,
    await signed(request, keys, { service: 'secretsmanager', region }, access.now()),
    region,
  );
  if (answer.status !== 200) {
    const { awsName } = await awsFailure(answer);
    const code = codeIn(awsName);
    // It says 400 for all that the caller could do better.
    const status = MISSING.has(code ?? '') ? 404 : DENIED.has(code ?? '') ? 403 : answer.status;
    throw failed(answer, code, advice, access.now(), status);
  }
  const { SecretString: text, SecretBinary: binary } = await objectIn(answer);
  if (typeof text === 'string') return { text: new Secret(text) };
  if (typeof binary === 'string') return { text: new Secret(Buffer.from(binary, 'base64').toString('utf8')) };
  throw new ManagerError('gave an answer without a secret', advice.missing);
}

/** A region that AWS does not have has no address either. */
async function called(access: Access, request: AdapterRequest, region: string): Promise<AdapterAnswer> {
  try {
    return await access.call(request);
  } catch (error) {
    if (!(error instanceof SluiceError) || error.kind !== 'upstream_unreachable') throw error;
    throw new ManagerError(
      `could not be reached in the region ${region}`,
      'Check that aws_region names the region that the secret lies in, and that this server reaches it.',
    );
  }
}
