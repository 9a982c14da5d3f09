import { cloudVariable, readCloudFile, readClusterToken, readSecretFile, secretVariable } from '../config.ts';
import { createFetcher } from '../http/background-fetcher.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import { createTokenCache } from '../providers/token-cache.ts';
import type { SecretContent, SecretManagers, SecretPlace } from '../resources/secret-references/manager.ts';
import type { Common } from './common.ts';

/** The readers are loaded with the first secret that is read: most servers never need them. */
class LazyManagers implements SecretManagers {
  readonly #open: () => Promise<SecretManagers>;
  #opened: Promise<SecretManagers> | null = null;

  constructor(open: () => Promise<SecretManagers>) {
    this.#open = open;
  }

  async read(place: SecretPlace): Promise<SecretContent> {
    this.#opened ??= this.#open();
    return (await this.#opened).read(place);
  }
}

/** The way to secret managers, with what the operator allows of the server itself. */
export function secretManagers({ config, clock, lifecycle }: Common, egress: EgressGuard): SecretManagers {
  const { secrets } = config;
  const services = {
    fetcher: lifecycle.own('calls of secret managers', createFetcher({ egress, clock })),
    egress,
    clock,
    tokens: createTokenCache(() => clock.now()),
    server: {
      identity: (organisationId: string) =>
        secrets.identity.some((one) => one === '*' || one === organisationId)
          ? { variable: cloudVariable, file: readCloudFile }
          : null,
      variable: (organisationId: string, name: string) => secretVariable(secrets, organisationId, name),
      file: (organisationId: string, path: string) => readSecretFile(secrets, organisationId, path),
      clusterToken: () => readClusterToken(secrets),
    },
  };
  return new LazyManagers(async () => (await import('../secrets/open.ts')).openSecretManagers(services));
}
