/** How programs and coding assistants are pointed at this gateway, each as it is pasted. */
import { type Snippet, type SnippetInput, snippets } from '../snippets.ts';

export interface Client extends Snippet {
  /** What to know beside the code: a text of the console. */
  readonly note: string | null;
}

/** The programs of `snippets.ts`, and what has settings in place of a program. */
export function clients(input: SnippetInput): readonly Client[] {
  const { baseUrl, model, prompt } = input;
  const [base, name, text] = [baseUrl, model, prompt].map((one) => JSON.stringify(one));
  const root = baseUrl.replace(/\/v1$/, '');
  return [
    ...snippets(input).map((one) => ({ ...one, note: null })),
    {
      id: 'vercel',
      label: 'Vercel AI SDK',
      install: 'npm install ai @ai-sdk/openai-compatible',
      note: null,
      code: `import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { streamText } from 'ai';

const sluice = createOpenAICompatible({
  name: 'sluice',
  baseURL: ${base},
  apiKey: process.env.SLUICE_API_KEY,
});

const { textStream } = streamText({
  model: sluice(${name}),
  prompt: ${text},
});
for await (const part of textStream) {
  process.stdout.write(part);
}`,
    },
    {
      id: 'langchain',
      label: 'LangChain',
      install: 'pip install langchain-openai',
      note: null,
      code: `import os
from langchain_openai import ChatOpenAI

llm = ChatOpenAI(
    base_url=${base},
    api_key=os.environ["SLUICE_API_KEY"],
    model=${name},
)
for chunk in llm.stream(${text}):
    print(chunk.content, end="", flush=True)`,
    },
    {
      id: 'claude-code',
      label: 'Claude Code',
      install: null,
      note: 'Choose a model that can use tools. The address has no /v1: Claude Code adds it.',
      code: `export ANTHROPIC_BASE_URL=${root}
export ANTHROPIC_AUTH_TOKEN="$SLUICE_API_KEY"
export ANTHROPIC_MODEL='${model}'
claude`,
    },
    {
      id: 'codex',
      label: 'Codex',
      install: null,
      note: 'This goes into ~/.codex/config.toml. Codex reads the key from SLUICE_API_KEY.',
      code: `model = ${name}
model_provider = "sluice"

[model_providers.sluice]
name = "Sluice"
base_url = ${base}
env_key = "SLUICE_API_KEY"
wire_api = "responses"`,
    },
    {
      id: 'cursor',
      label: 'Cursor',
      install: null,
      note: 'In the settings of Cursor, under Models. The servers of Cursor make the calls, so the address must be public.',
      code: `OpenAI API Key:            the value of SLUICE_API_KEY
Override OpenAI Base URL:  ${baseUrl}
Add model:                 ${model}`,
    },
  ];
}
