import type { Guardrail, Operations } from '../../../types/api.ts';
import { t } from '../../app/i18n.ts';

export type Catalogue = Operations['GET /v1/guardrails/checks']['answer']['data'];
export type CheckKind = Catalogue[number];
export type Detail = Guardrail;
export type Listed = Operations['GET /v1/guardrails']['answer']['data'][number];

/** What a form has of a check. */
export interface CheckForm {
  readonly id: string;
  readonly is_enabled: boolean;
  readonly parameters: Readonly<Record<string, unknown>>;
}

/** What a form has of a guardrail. */
export interface GuardrailForm {
  readonly name: string;
  readonly checks: readonly CheckForm[];
  readonly deny: boolean;
  readonly async: boolean;
  readonly messages: Detail['actions']['messages'];
  readonly stream: Detail['actions']['stream'];
}

const WORDS: Readonly<Record<string, string>> = {
  'default.regexMatch': 'Matches a pattern',
  'default.sentenceCount': 'Number of sentences',
  'default.wordCount': 'Number of words',
  'default.characterCount': 'Number of characters',
  'default.alluppercase': 'All letters are capitals',
  'default.isAllLowerCase': 'No letter is a capital',
  'default.endsWith': 'Ends with a text',
  'default.contains': 'Contains words',
  'default.containsCode': 'Contains code',
  'default.jsonSchema': 'JSON that fits a schema',
  'default.jsonKeys': 'JSON with these keys',
  'default.validUrls': 'Links that lead somewhere',
  'default.notNull': 'The answer is not empty',
  'default.modelWhitelist': 'Allowed models',
  'default.modelRules': 'Allowed models by metadata',
  'default.allowedRequestTypes': 'Allowed kinds of requests',
  'default.requiredMetadataKeys': 'Metadata with these keys',
  'default.requiredMetadataKeyPairs': 'Metadata with these values',
  'default.requestParametersCheck': 'Allowed parameters and tools',
  'default.jwt': 'A valid token of the caller',
  'default.addPrefix': 'Add a prefix',
  'default.inlineImageUrls': 'Put linked images into the request',
  'default.webhook': 'Ask a webhook',
  'default.log': 'Report to a server',
  'gateway.pii': 'Personal data',
  'gateway.language': 'Language',
  'gateway.gibberish': 'Text without sense',
  'gateway.secrets': 'Secrets and keys',
  'gateway.promptInjection': 'Prompt injection',
  'gateway.moderateContent': 'Moderation by OpenAI',
  'mistral.moderateContent': 'Moderation by Mistral',
  'azure.contentSafety': 'Azure Content Safety',
  'azure.pii': 'Personal data, by Azure',
  'bedrock.guard': 'Amazon Bedrock Guardrails',
  'google.modelArmor': 'Google Model Armor',
  'presidio.analyze': 'Personal data, by Presidio',
  'lakera.guard': 'Lakera Guard',
  'panwPrismaAirs.intercept': 'Prisma AIRS',
  'pangea.textGuard': 'Pangea AI Guard',
  'pangea.promptGuard': 'Pangea Prompt Guard',
  'aporia.validateProject': 'Aporia',
};

/** What a check is about; its id where this console does not know it. */
export const checkName = (id: string): string => (WORDS[id] === undefined ? id : t(WORDS[id]));

export const EMPTY: GuardrailForm = {
  name: '',
  checks: [],
  deny: true,
  async: false,
  messages: 'all',
  stream: 'incremental',
};

export interface Recipe {
  readonly id: string;
  readonly name: string;
  readonly what: string;
  readonly check: CheckForm;
}

const recipe = (
  id: string,
  name: string,
  what: string,
  check: string,
  parameters: CheckForm['parameters'],
): Recipe => ({
  id,
  name,
  what,
  check: { id: check, is_enabled: true, parameters },
});

/** Where most begin. */
export const recipes = (): Recipe[] => [
  recipe(
    'redact',
    t('Redact personal data'),
    t('The provider gets placeholders in place of names, addresses and numbers.'),
    'gateway.pii',
    {
      categories: ['EMAIL_ADDRESS', 'PHONE_NUMBER', 'CREDIT_CARD', 'IBAN', 'SSN', 'IP_ADDRESS'],
      redact: true,
    },
  ),
  recipe('cards', t('Block card numbers'), t('A request or answer with a card number is refused.'), 'gateway.pii', {
    categories: ['CREDIT_CARD'],
  }),
  recipe('secrets', t('Block secrets'), t('Private keys, tokens and passwords stay here.'), 'gateway.secrets', {}),
  recipe('models', t('Allow some models'), t('Any other model is refused.'), 'default.modelWhitelist', {
    models: ['gpt-4o-mini'],
  }),
];

export const formOf = ({ name, checks, actions }: Detail): GuardrailForm => ({
  name,
  checks: checks.map(({ id, is_enabled, parameters }) => ({ id, is_enabled, parameters })),
  deny: actions.deny,
  async: actions.async,
  messages: actions.messages,
  stream: actions.stream,
});

/** The body of a write. What the form does not show stays as it is. */
export const bodyOf = ({ name, checks, deny, async, messages, stream }: GuardrailForm) => ({
  name: name.trim(),
  checks: checks.map((check) => ({ ...check, parameters: { ...check.parameters } })),
  actions: { deny, async, messages, stream, on_success: {}, on_fail: {} },
});
