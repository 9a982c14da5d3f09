/** The secret managers: how each is signed in to, and what a path of its secrets looks like. */
import { z } from 'zod';
import type { SecretManagerType } from '../../store/schema.ts';
import { customHost, secretText, text } from '../body-fields.ts';

export interface AuthField {
  readonly required?: true;
  /** Sealed at rest, and answered as `masked_<name>`. */
  readonly secret?: true;
  /** Says where secrets are sent: those that are stored do not follow when it changes. */
  readonly address?: true;
}

export interface Manager {
  /** What it is called in messages. */
  readonly title: string;
  /** The field that chooses a way of signing in; null: there is nothing to choose. */
  readonly selector: string | null;
  /** Fields by way of signing in. */
  readonly ways: Readonly<Record<string, Readonly<Record<string, AuthField>>>>;
  readonly path: RegExp;
  /** Completes "secret_path must be". */
  readonly pathForm: string;
}

const REQUIRED = { required: true } as const;
const SECRET = { required: true, secret: true } as const;
const MAY = {};
const ADDRESS = { required: true, address: true } as const;

const VAULT = { vault_addr: ADDRESS, vault_namespace: MAY } as const;
const VAULT_LOGIN = { ...VAULT, vault_auth_path: MAY } as const;
const AZURE = { azure_vault_url: ADDRESS } as const;

/** The host of an Azure key vault, in each of its clouds. */
const AZURE_VAULT =
  /^https:\/\/[a-z0-9](?:[a-z0-9-]{1,22}[a-z0-9])\.vault\.(?:azure\.net|azure\.cn|usgovcloudapi\.net)\/?$/i;
const REGION = /^[a-z]{2}(?:-[a-z]+)+-[0-9]$/;
const ARN = /^arn:aws[a-z-]*:secretsmanager:([a-z]{2}(?:-[a-z]+)+-[0-9]):\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,520}$/;

/** The region of an AWS ARN, which comes before that of the account; null for a name. */
export const regionOfArn = (path: string): string | null => ARN.exec(path)?.[1] ?? null;

export const MANAGERS: Readonly<Record<SecretManagerType, Manager>> = {
  aws_sm: {
    title: 'AWS Secrets Manager',
    selector: 'aws_auth_type',
    ways: {
      accessKey: { aws_access_key_id: SECRET, aws_secret_access_key: SECRET, aws_region: REQUIRED },
      assumedRole: {
        aws_role_arn: REQUIRED,
        aws_external_id: MAY,
        aws_region: REQUIRED,
        aws_access_key_id: { secret: true },
        aws_secret_access_key: { secret: true },
      },
      serviceRole: { aws_region: MAY },
    },
    path: /^(?:[A-Za-z0-9/_+=.@-]{1,512}|arn:aws[a-z-]*:secretsmanager:[a-z]{2}(?:-[a-z]+)+-[0-9]:\d{12}:secret:[A-Za-z0-9/_+=.@-]{1,520})$/,
    pathForm: 'the name or the ARN of a secret, such as prod/openai',
  },
  azure_kv: {
    title: 'Azure Key Vault',
    selector: 'azure_auth_mode',
    ways: {
      entra: {
        azure_entra_tenant_id: REQUIRED,
        azure_entra_client_id: REQUIRED,
        azure_entra_client_secret: SECRET,
        ...AZURE,
      },
      managed: { azure_managed_client_id: MAY, ...AZURE },
      default: AZURE,
    },
    path: /^[A-Za-z0-9-]{1,127}(?:\/[0-9A-Fa-f]{32})?$/,
    pathForm: 'the name of a secret, or name/version',
  },
  hashicorp_vault: {
    title: 'HashiCorp Vault',
    selector: 'vault_auth_type',
    ways: {
      token: { vault_token: SECRET, ...VAULT },
      approle: { vault_role_id: REQUIRED, vault_secret_id: SECRET, ...VAULT_LOGIN },
      kubernetes: { vault_role: REQUIRED, ...VAULT_LOGIN },
      jwt: { vault_role: REQUIRED, vault_jwt: SECRET, ...VAULT_LOGIN },
    },
    path: /^(?!(?:.*\/)?\.{1,2}(?:\/|\?|$))[A-Za-z0-9_.~@+=:-]+(?:\/[A-Za-z0-9_.~@+=: -]+)+(?:\?version=[1-9]\d{0,8})?$/,
    pathForm:
      'the path of the secret without /v1/, such as secret/data/openai for version 2 of the engine and kv/openai for version 1; ?version=3 names a version',
  },
  gcp_sm: {
    title: 'Google Secret Manager',
    selector: 'gcp_auth_type',
    ways: { serviceAccount: { gcp_service_account_json: SECRET }, workloadIdentity: {} },
    path: /^projects\/[a-z0-9:.-]{1,100}(?:\/locations\/[a-z0-9-]{1,40})?\/secrets\/[A-Za-z0-9_-]{1,255}(?:\/versions\/[A-Za-z0-9_-]{1,63})?$/,
    pathForm: 'projects/<project>/secrets/<secret>, with /versions/<version> for another one than the latest',
  },
  env: {
    title: 'the server',
    selector: null,
    ways: { '': {} },
    path: /^[A-Za-z_][A-Za-z0-9_]{0,254}$/,
    pathForm: 'the name of an environment variable',
  },
  file: {
    title: 'the server',
    selector: null,
    ways: { '': {} },
    path: /^(?!(?:.*\/)?\.{1,2}(?:\/|$))[A-Za-z0-9_.-]{1,255}(?:\/[A-Za-z0-9_.-]{1,255}){0,15}$/,
    pathForm: 'the path of a file below the directory of your organisation',
  },
};

export const MANAGER_TYPES = Object.keys(MANAGERS) as [SecretManagerType, ...SecretManagerType[]];

const short = text(255, 1);
const choice = (type: SecretManagerType) =>
  z.enum(Object.keys(MANAGERS[type].ways) as [string, ...string[]]).optional();

/** Each field with its content. Which of them belong together is for `auth-config.ts` to say. */
export const authConfig = z
  .strictObject({
    aws_auth_type: choice('aws_sm'),
    aws_access_key_id: secretText.optional(),
    aws_secret_access_key: secretText.optional(),
    aws_region: text(255, 1)
      .regex(REGION, { error: 'must be the name of an AWS region, such as eu-central-1' })
      .optional(),
    aws_role_arn: text(2048, 20)
      .regex(/^arn:aws[a-z-]*:iam::\d{12}:role\/[\w+=,.@/-]+$/, { error: 'must be the ARN of a role' })
      .optional(),
    aws_external_id: text(1224, 2)
      .regex(/^(?!sluice:)[\w+=,.@:/-]+$/, {
        error:
          'must consist of letters, digits and _+=,.@:/-, and not begin with "sluice:", which is for Sluice to send',
      })
      .nullable()
      .optional()
      .describe('Without it, Sluice sends `sluice:<id of your organisation>`.'),
    azure_auth_mode: choice('azure_kv'),
    azure_entra_tenant_id: short.optional(),
    azure_entra_client_id: short.optional(),
    azure_entra_client_secret: secretText.optional(),
    azure_managed_client_id: short.optional(),
    azure_vault_url: text(255, 1)
      .regex(AZURE_VAULT, { error: 'must be the address of a key vault, such as https://my-vault.vault.azure.net' })
      .optional(),
    vault_auth_type: choice('hashicorp_vault'),
    vault_addr: customHost.optional().describe('Without `/v1`, such as `https://vault.example.com:8200`.'),
    vault_namespace: text(255, 1)
      .regex(/^[\w/.-]+$/, { error: 'must consist of letters, digits and _/.-' })
      .optional(),
    vault_token: secretText.optional(),
    vault_role_id: short.optional(),
    vault_secret_id: secretText.optional(),
    vault_role: short.optional(),
    vault_jwt: secretText.optional(),
    vault_auth_path: text(255, 1)
      .regex(/^(?!.*\.\.)[\w.-]+(?:\/[\w.-]+)*$/, { error: 'must be the path of an auth method, such as approle' })
      .optional()
      .describe('Where the auth method is mounted below `auth/`; default: its own name.'),
    gcp_auth_type: choice('gcp_sm'),
    gcp_service_account_json: secretText.optional().describe('The key file of a service account, as text.'),
  })
  .meta({ title: 'SecretManagerAuth' });

export type AuthConfig = z.output<typeof authConfig>;
