import type { Operations } from '../../../types/api.ts';
import type { SchemaField, Values } from '../../ui/schema-form.tsx';

export type Account = Operations['GET /v1/integrations']['answer']['data'][number];
export type AccountDetail = Operations['GET /v1/integrations/{slug}']['answer'];
export type Kind = Operations['GET /v1/provider-kinds']['answer']['data'][number];
export type Provider = Operations['GET /v1/providers']['answer']['data'][number];

const NAMES: Readonly<Record<string, string>> = {
  openai: 'OpenAI',
  xai: 'xAI',
  zai: 'Z.ai',
  'z-ai': 'Z.ai',
  vllm: 'vLLM',
  openrouter: 'OpenRouter',
  sambanova: 'SambaNova',
  deepinfra: 'DeepInfra',
  deepseek: 'DeepSeek',
  dashscope: 'DashScope',
  huggingface: 'Hugging Face',
  bedrock: 'Amazon Bedrock',
  'azure-openai': 'Azure OpenAI',
  'azure-ai': 'Azure AI',
  'vertex-ai': 'Vertex AI',
  'nvidia-nim': 'NVIDIA NIM',
};

/** A base provider as it writes itself: names, which no language changes. */
export const kindName = (id: string): string =>
  NAMES[id] ??
  id.replaceAll(/(^|-)([a-z])/g, (_all, dash: string, letter: string) => `${dash ? ' ' : ''}${letter.toUpperCase()}`);

interface Layout {
  readonly needsKey: boolean;
  /** What must be given, and what says how to sign in. */
  readonly first: readonly SchemaField[];
  readonly more: readonly SchemaField[];
}

/** The fields of a kind with the ways of signing in that are chosen so far, and whether its accounts need a key then. */
export function layoutOf(kind: Kind, values: Values): Layout {
  let needsKey = kind.needs_key;
  const all = kind.fields.flatMap((field): SchemaField[] => {
    const way = field.ways?.find(({ value }) => value === values[field.name]);
    if (way !== undefined) needsKey = field.name === 'auth_type' ? needsKey && way.needs_key : way.needs_key;
    return [field, ...(way?.fields ?? [])];
  });
  const chosen = kind.fields.flatMap(
    ({ name, ways }) => ways?.find(({ value }) => value === values[name])?.fields.map((field) => field.name) ?? [],
  );
  const isFirst = ({ name, required }: SchemaField) => required || chosen.includes(name);
  return { needsKey, first: all.filter(isFirst), more: all.filter((field) => !isFirst(field)) };
}

/** Settings that belong to the ways of signing in that are chosen: those of a former choice are left out. */
export function settingsOf(kind: Kind, values: Values): Values {
  const { first, more } = layoutOf(kind, values);
  const names = new Set([...first, ...more].map(({ name }) => name));
  return Object.fromEntries(Object.entries(values).filter(([name]) => names.has(name)));
}
