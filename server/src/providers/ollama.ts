import { isObject } from '../kernel/json.ts';
import { asArray, refuse } from '../operations/convert/fields.ts';
import { compatible } from './openai-compatible.ts';
import { drop, mapMessages, refuseFields } from './quirks.ts';

/** Images must be inline: the server fetches nothing. */
const inlineImages = mapMessages(['"image_url"'], (message) => {
  for (const part of asArray(message.content)) {
    if (!isObject(part) || part.type !== 'image_url') continue;
    const url = isObject(part.image_url) ? part.image_url.url : part.image_url;
    if (typeof url === 'string' && !url.startsWith('data:')) {
      refuse('image_url', 'images must be sent as data URIs there.');
    }
  }
  return message;
});

/** Self-hosted: the address is always a custom host (`http://host:11434/v1`). */
export const ollama = compatible({
  id: 'ollama',
  title: 'Ollama',
  baseUrl: null,
  needsKey: false,
  serves: ['completions', 'embeddings', 'responses', 'messages'],
  chat: {
    request: [refuseFields('tool_choice', 'logit_bias', 'n', 'logprobs', 'top_logprobs'), inlineImages, drop('user')],
    omit: ['user'],
    reasoning: { field: 'reasoning' },
  },
});
