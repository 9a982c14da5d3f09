/** The clouds of Microsoft: each has its own names of hosts, its own Entra and its own audiences of tokens. */
import { SluiceError } from '../../kernel/errors.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';

export interface AzureCloud {
  /** What names of hosts end in. */
  readonly suffix: string;
  /** Origin of its Entra. */
  readonly authority: string;
}

const PUBLIC: AzureCloud = { suffix: 'azure.com', authority: 'https://login.microsoftonline.com' };
const GOVERNMENT: AzureCloud = { suffix: 'azure.us', authority: 'https://login.microsoftonline.us' };
const CHINA: AzureCloud = { suffix: 'azure.cn', authority: 'https://login.partner.microsoftonline.cn' };

const CLOUDS: ReadonlyMap<string, AzureCloud> = new Map([
  ['public', PUBLIC],
  ['government', GOVERNMENT],
  ['china', CHINA],
]);

/** What `azure_cloud` of an account may say. */
export const AZURE_CLOUDS = ['public', 'government', 'china'] as const;

/** The cloud that an account says, else that of its Foundry address, else the public one. */
export function cloudOf(credentials: Credentials): AzureCloud {
  const named = textSetting(credentials, 'azure_cloud');
  if (named !== undefined) {
    const cloud = CLOUDS.get(named);
    if (cloud !== undefined) return cloud;
    throw new SluiceError('malformed_call', 'azure_cloud must be public, government or china.', {
      param: 'azure_cloud',
    });
  }
  const host = URL.parse(textSetting(credentials, 'azure_foundry_url') ?? '')?.hostname ?? '';
  return [GOVERNMENT, CHINA].find(({ suffix }) => host.endsWith(`.${suffix}`)) ?? PUBLIC;
}

/** What tokens are for: the data plane of cognitive services, that of Foundry, or endpoints of machine learning. */
export type Audience = 'cognitiveservices' | 'ai' | 'ml';

/** The audience's address in the account's cloud: `https://cognitiveservices.azure.com`. */
export const audienceOf = (credentials: Credentials, audience: Audience): string =>
  `https://${audience}.${cloudOf(credentials).suffix}`;
