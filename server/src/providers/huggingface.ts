import { compatible, plainBinding } from './openai-compatible.ts';
import type { Bindings, Provider } from './provider.ts';
import { textSetting } from './settings.ts';

/** Version path of a dedicated endpoint's address; the routers' addresses have their own. */
function withVersion(url: string): string {
  const trimmed = url.replace(/\/+$/, '');
  return /\/v\d+$/.test(trimmed) ? trimmed : `${trimmed}/v1`;
}

const router = compatible({
  id: 'huggingface',
  title: 'Hugging Face',
  settings: {
    huggingface_base_url: { host: true, virtualKey: 'huggingfaceBaseUrl', request: { redirects: true } },
  },
  baseUrl(credentials) {
    const own = textSetting(credentials, 'huggingface_base_url');
    return own === undefined ? 'https://router.huggingface.co/v1' : withVersion(own);
  },
  headers(headers, context) {
    const billTo = context.header('x-hf-bill-to');
    if (billTo !== undefined && billTo !== '') headers.push('x-hf-bill-to', billTo);
  },
  serves: ['responses'],
});

/** An endpoint of one's own answers embeddings in the same shape; the router has them for no model. */
const dedicated: Bindings = { ...router.bindings, embeddings: plainBinding('embeddings') };

export const huggingface: Provider = {
  ...router,
  bindingsOf: (_model, credentials) =>
    textSetting(credentials, 'huggingface_base_url') === undefined ? null : dedicated,
  allBindings: { router: router.bindings, dedicated },
};
