import { anthropic } from './anthropic/anthropic.ts';
import { azureAi } from './azure-ai/azure-ai.ts';
import { azureOpenAi } from './azure-openai/azure-openai.ts';
import { bedrock } from './bedrock/bedrock.ts';
import { cerebras } from './cerebras.ts';
import { cohere } from './cohere/cohere.ts';
import { dashscope } from './dashscope.ts';
import { deepinfra } from './deepinfra.ts';
import { deepseek } from './deepseek.ts';
import { fireworksAi } from './fireworks-ai/fireworks-ai.ts';
import { google } from './google/google.ts';
import { groq } from './groq.ts';
import { huggingface } from './huggingface.ts';
import { hyperbolic } from './hyperbolic.ts';
import { jina } from './jina.ts';
import { mistralAi } from './mistral-ai/mistral-ai.ts';
import { moonshot } from './moonshot.ts';
import { nebius } from './nebius.ts';
import { nvidiaNim } from './nvidia-nim.ts';
import { ollama } from './ollama.ts';
import { openai } from './openai/openai.ts';
import { openrouter } from './openrouter.ts';
import { perplexity } from './perplexity.ts';
import type { Provider } from './provider.ts';
import { sambanova } from './sambanova.ts';
import { sandbox } from './sandbox/sandbox.ts';
import { togetherAi } from './together-ai/together-ai.ts';
import { vertexAi } from './vertex-ai/vertex-ai.ts';
import { vllm } from './vllm.ts';
import { voyage } from './voyage.ts';
import { xai } from './xai.ts';
import { zAi, zhipu } from './zhipu.ts';

const ALL: readonly Provider[] = [
  openai,
  anthropic,
  bedrock,
  azureAi,
  azureOpenAi,
  cerebras,
  cohere,
  dashscope,
  deepinfra,
  deepseek,
  fireworksAi,
  google,
  groq,
  huggingface,
  hyperbolic,
  jina,
  mistralAi,
  moonshot,
  nebius,
  nvidiaNim,
  ollama,
  openrouter,
  perplexity,
  sambanova,
  sandbox,
  togetherAi,
  vertexAi,
  vllm,
  voyage,
  xai,
  zAi,
  zhipu,
];

/** Every provider by its id. */
export const PROVIDERS: ReadonlyMap<string, Provider> = new Map(ALL.map((provider) => [provider.id, provider]));

/** Other names under which callers know a provider. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ['x-ai', 'xai'],
  ['nvidia', 'nvidia-nim'],
  ['nim', 'nvidia-nim'],
  ['together', 'together-ai'],
  ['fireworks', 'fireworks-ai'],
  ['mistral', 'mistral-ai'],
  ['gemini', 'google'],
  ['vertex', 'vertex-ai'],
]);

/** The provider with this id or alias. */
export function providerById(id: string): Provider | undefined {
  return PROVIDERS.get(id) ?? PROVIDERS.get(ALIASES.get(id) ?? '');
}
