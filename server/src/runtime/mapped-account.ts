/** An account of which secret managers fill some fields. */
import { isDeepStrictEqual } from 'node:util';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { Log } from '../kernel/log.ts';
import { Secret } from '../kernel/secret.ts';
import { mappedValue } from '../resources/integrations/configurations.ts';
import { splitSettings } from '../resources/integrations/secrets.ts';
import type { MappedField, OpenedAccount, OpenPlace } from '../resources/runtime-rows.ts';
import { pick } from '../resources/secret-references/content.ts';
import { type Holds, type Opened, SealedValue } from './opened.ts';
import type { SecretValues } from './secret-values.ts';

export interface MappedParts {
  /** Base provider. */
  readonly providerId: string;
  readonly mapped: readonly MappedField[];
  /** What is stored of the account itself. */
  readonly open: () => Promise<OpenedAccount>;
  readonly openPlace: OpenPlace;
  readonly values: SecretValues;
}

type Filled = OpenedAccount & Holds;

/** It holds as long as the secret that ends first. Between two reads of the managers it costs what every account costs. */
export class MappedAccount implements Opened<OpenedAccount> {
  readonly #parts: MappedParts;
  readonly #filled: SealedValue<Filled>;

  /** @param what names the account in the log */
  constructor(parts: MappedParts, clock: Clock, log: Log, what: Readonly<Record<string, string>>) {
    this.#parts = parts;
    this.#filled = new SealedValue(
      () => this.#fill(),
      clock,
      log,
      what,
      (value) => value,
    );
  }

  get until(): number {
    return this.#filled.until;
  }

  get(): OpenedAccount | Promise<OpenedAccount> {
    return this.#filled.get();
  }

  async renew(refused: OpenedAccount): Promise<OpenedAccount | null> {
    const known = await this.get();
    if (known !== refused && !sameAccount(known, refused)) return known;
    for (const { reference } of this.#parts.mapped) {
      if (reference !== null) this.#parts.values.refused(nameOf(reference));
    }
    const fresh = await this.#filled.reopen();
    return sameAccount(fresh, refused) ? null : fresh;
  }

  async #fill(): Promise<Filled> {
    const { mapped, providerId, open, openPlace, values } = this.#parts;
    const account = await open();
    let { key } = account;
    const settings: Record<string, unknown> = {};
    let due = Number.POSITIVE_INFINITY;
    let end = Number.POSITIVE_INFINITY;
    // Together: an account with several would wait for one manager after the other.
    const held = await Promise.all(
      mapped.map(async ({ reference, open: allowed, name }) => {
        if (reference === null || !allowed) throw closed(name);
        const what = { reference: reference.slug, manager: reference.manager_type };
        return values.get(nameOf(reference), what, () => openPlace(reference));
      }),
    );
    for (const [i, { field, name, key: member, format }] of mapped.entries()) {
      const secret = held[i];
      if (secret === undefined) continue;
      due = Math.min(due, secret.due);
      end = Math.min(end, secret.end);
      const picked = pick(secret.content, name, member, format);
      const value = mappedValue(providerId, field, picked instanceof Secret ? picked.reveal() : picked);
      if (value === undefined) throw unfit(name, field);
      if (field === 'key') key = new Secret(String(value));
      else settings[field] = value;
    }
    const { settings: own, customHost, customHeaders } = splitSettings(settings);
    return {
      key,
      settings: { ...account.settings, ...own },
      customHost: customHost ?? account.customHost,
      customHeaders: { ...account.customHeaders, ...customHeaders },
      due,
      end,
    };
  }
}

/** Different for all that lead to different secrets: what else is changed of a reference reads nothing anew. */
function nameOf(reference: NonNullable<MappedField['reference']>): string {
  const { id, manager_type, secret_path, auth_config, secret_auth_config } = reference;
  return JSON.stringify([id, manager_type, secret_path, auth_config, secret_auth_config]);
}

function sameAccount(a: OpenedAccount, b: OpenedAccount): boolean {
  const parts = ({ key, settings, customHost, customHeaders }: OpenedAccount) => [
    key?.reveal(),
    settings,
    customHost,
    customHeaders,
  ];
  return isDeepStrictEqual(parts(a), parts(b));
}

const closed = (name: string) =>
  new SluiceError(
    'out_of_service',
    `The secret reference ${name} does not exist, or is closed to this workspace: correct the secret_mappings, or open it by its allowed_workspaces.`,
  );

const unfit = (name: string, field: string) =>
  new SluiceError(
    'out_of_service',
    `The secret of reference ${name} does not fit the field ${field} that it is mapped to: correct the secret, its secret_key or the value_format of the mapping.`,
  );
