import { domainOf, regionOf } from '../aws/settings.ts';
import type { Credentials } from '../provider.ts';

const hostOf =
  (service: string) =>
  (credentials: Credentials): string | null => {
    const region = regionOf(credentials);
    return region === null ? null : `https://${service}.${region}.${domainOf(region)}`;
  };

/** Models, jobs and batches. Null without a region, or with one that may not go into a host name. */
export const controlBase = hostOf('bedrock');
/** Calls of models. */
export const runtimeBase = hostOf('bedrock-runtime');
