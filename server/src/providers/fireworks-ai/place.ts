import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { asObject } from '../../operations/convert/fields.ts';
import { textSetting } from '../settings.ts';
import type { AdapterContext } from '../training.ts';
import { idSegment, textOf } from '../training-calls.ts';

const INFERENCE = '/inference/v1';
const ACCOUNT = /^[a-z0-9][a-z0-9-]{0,62}$/;
const RESOURCE_ID = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const PUBLIC_MODELS = 'accounts/fireworks/models/';

/** The account whose resources are meant: a setting of the provider, or sent along by the caller. */
export function accountOf(context: Pick<AdapterContext, 'credentials'>): string {
  const account = textSetting(context.credentials, 'fireworks_account_id')?.replace(/^accounts\//, '');
  if (account !== undefined && ACCOUNT.test(account)) return account;
  throw new SluiceError(
    'invalid_request',
    account === undefined
      ? 'Fireworks keeps files and jobs by account; name it in x-gateway-fireworks-account-id or in fireworks_account_id of the provider.'
      : 'The Fireworks account id must be lower-case letters, digits and hyphens.',
    { param: 'fireworks_account_id' },
  );
}

/** `https://api.fireworks.ai/v1/accounts/{id}`: the control plane lies beside the inference paths of the base URL. */
export function controlPlane(context: AdapterContext): string {
  const { base } = context;
  const root = base.endsWith(INFERENCE) ? `${base.slice(0, -INFERENCE.length)}/v1` : base;
  return `${root}/accounts/${accountOf(context)}`;
}

/** Last segment of a resource name. */
export const shortId = (name: string): string => name.slice(name.lastIndexOf('/') + 1);

/** Full name of a resource of the account; one that is full already stays as it is. */
export function resourceName(context: AdapterContext, collection: 'datasets' | 'models', id: string): string {
  return id.startsWith('accounts/') ? id : `accounts/${accountOf(context)}/${collection}/${idSegment(id)}`;
}

/** Full name of a model; short names are those of the public catalogue. */
export const modelName = (model: string): string => (model.startsWith('accounts/') ? model : PUBLIC_MODELS + model);

/** The name callers know a model by. */
export const modelOf = (name: string | null): string =>
  name?.startsWith(PUBLIC_MODELS) ? name.slice(PUBLIC_MODELS.length) : (name ?? '');

/** 400 for an id upstream would not take. */
export function checkedId(id: string, param: string): string {
  if (RESOURCE_ID.test(id)) return id;
  throw new SluiceError(
    'invalid_request',
    `${param} becomes an id here: at most 63 lower-case letters, digits and hyphens, with no hyphen at either end.`,
    { param },
  );
}

/** The `status` of a resource when it is a failure; `OK` and nothing are none. */
export function failureIn(raw: JsonObject): { readonly code: string; readonly message: string } | null {
  const { code, message } = asObject(raw.status);
  const name = textOf(code);
  if (name === null || name === 'OK') return null;
  return { code: name.toLowerCase(), message: textOf(message) ?? 'The provider gave no reason.' };
}
