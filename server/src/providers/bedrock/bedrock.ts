import { AWS_SECRET_SETTINGS, AWS_SETTINGS, domainOf, regionOf } from '../aws/settings.ts';
import { bearer } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import { settingsOf } from '../settings.ts';
import { batches } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';

/** Amazon Bedrock: training, files on S3 and batches. Its control plane signs calls, which the adapters do themselves. */
export const bedrock: Provider = {
  id: 'bedrock',
  title: 'Amazon Bedrock',
  settings: settingsOf(AWS_SETTINGS),
  secretSettings: AWS_SECRET_SETTINGS,
  needsKey: false,
  /** Null without a region, or with one that may not go into a host name. */
  baseUrl(credentials) {
    const region = regionOf(credentials);
    return region === null ? null : `https://bedrock.${region}.${domainOf(region)}`;
  },
  authorize: bearer,
  bindings: {},
  passThrough: false,
  training: { jobs, files, batches },
};
