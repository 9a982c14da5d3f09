import type { JsonObject } from '../kernel/json.ts';
import { compatible, requestOf } from './openai-compatible.ts';
import { drop, type RequestQuirk } from './quirks.ts';

/** Most models here need to know whether a text is searched for or searched in; callers rarely say (RULE 45). */
const inputType: RequestQuirk = {
  touches: ['"input"'],
  apply: (body): JsonObject =>
    body.input === undefined || body.input_type !== undefined ? body : { ...body, input_type: 'passage' },
};

export const nvidiaNim = compatible({
  id: 'nvidia-nim',
  title: 'NVIDIA NIM',
  baseUrl: 'https://integrate.api.nvidia.com/v1',
  serves: ['completions'],
  chat: {
    request: [drop('user')],
    omit: ['user'],
    reasoning: { field: 'reasoning_content' },
  },
  bindings: { embeddings: requestOf([inputType, drop('user')]) },
});
