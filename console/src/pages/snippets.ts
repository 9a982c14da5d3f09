/** Ready-to-paste programs for the request on the page. The key is never in them: they read SLUICE_API_KEY. */
export interface SnippetInput {
  /** With `/v1`, without a trailing slash. */
  readonly baseUrl: string;
  readonly model: string;
  readonly prompt: string;
}

export interface Snippet {
  readonly id: string;
  readonly label: string;
  /** What to run before, if anything. */
  readonly install: string | null;
  readonly code: string;
}

/** A JSON string is also a valid Python and JavaScript string literal. */
const literal = (text: string) => JSON.stringify(text);

/** One word for a POSIX shell, whatever the text holds. */
export const shellWord = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export function snippets({ baseUrl, model, prompt }: SnippetInput): readonly Snippet[] {
  const body = `{
  "model": ${literal(model)},
  "stream": true,
  "messages": [{"role": "user", "content": ${literal(prompt)}}]
}`;
  return [
    {
      id: 'curl',
      label: 'curl',
      install: null,
      code: `curl -N ${baseUrl}/chat/completions \\
  -H "Authorization: Bearer $SLUICE_API_KEY" \\
  -H "Content-Type: application/json" \\
  -d ${shellWord(body)}`,
    },
    {
      id: 'python',
      label: 'Python',
      install: 'pip install openai',
      code: `import os
from openai import OpenAI

client = OpenAI(
    base_url=${literal(baseUrl)},
    api_key=os.environ["SLUICE_API_KEY"],
)

stream = client.chat.completions.create(
    model=${literal(model)},
    messages=[{"role": "user", "content": ${literal(prompt)}}],
    stream=True,
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    },
    {
      id: 'typescript',
      label: 'TypeScript',
      install: 'npm install openai',
      code: `import OpenAI from 'openai';

const client = new OpenAI({
  baseURL: ${literal(baseUrl)},
  apiKey: process.env.SLUICE_API_KEY,
});

const stream = await client.chat.completions.create({
  model: ${literal(model)},
  messages: [{ role: 'user', content: ${literal(prompt)} }],
  stream: true,
});
for await (const chunk of stream) {
  process.stdout.write(chunk.choices[0]?.delta?.content ?? '');
}`,
    },
    {
      id: 'anthropic',
      label: 'Anthropic SDK',
      install: 'npm install @anthropic-ai/sdk',
      code: `import Anthropic from '@anthropic-ai/sdk';

const client = new Anthropic({
  baseURL: ${literal(baseUrl.replace(/\/v1$/, ''))},
  authToken: process.env.SLUICE_API_KEY,
  apiKey: null,
});

const stream = client.messages.stream({
  model: ${literal(model)},
  max_tokens: 1024,
  messages: [{ role: 'user', content: ${literal(prompt)} }],
});
stream.on('text', (text) => process.stdout.write(text));
await stream.finalMessage();`,
    },
  ];
}
