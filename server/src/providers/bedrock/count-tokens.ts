/** Tokens of a Messages request of models that are no Claude, counted as the Converse request it becomes. */
import type { JsonObject } from '../../kernel/json.ts';
import { conversion } from '../../operations/convert/index.ts';
import type { Binding } from '../provider.ts';
import { chat } from './chat.ts';
import { countAnswer, countPath } from './claude.ts';
import { converseRequest } from './converse-request.ts';
import { modelBehind } from './families.ts';
import { runtimeBase } from './hosts.ts';

/** Fields of a Converse request that are counted. */
const COUNTED = ['messages', 'system', 'toolConfig', 'additionalModelRequestFields'] as const;

export const countConverse: Binding = {
  shape: 'count_tokens',
  path: countPath,
  base: runtimeBase,
  ownQuery: true,
  request(body, context) {
    const asChat = conversion('messages', 'chat', chat.target)?.request({ max_tokens: 1, ...body }, context) ?? body;
    const whole = converseRequest(asChat, modelBehind(context), context.header);
    const converse: JsonObject = {};
    for (const name of COUNTED) if (whole[name] !== undefined) converse[name] = whole[name];
    return { input: { converse } };
  },
  response: countAnswer,
};
