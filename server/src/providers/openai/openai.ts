import { OPERATIONS, type OperationId } from '../../operations/operation.ts';
import { bearer, plainBinding } from '../openai-compatible.ts';
import type { Binding, CallContext, Provider } from '../provider.ts';
import { headerValue, settingsOf, textSetting } from '../settings.ts';

/** Operations of another vendor's dialect; they are served through a conversion or not at all. */
const FOREIGN: ReadonlySet<OperationId> = new Set(['messages', 'count_tokens', 'rerank']);

const bindings: Partial<Record<OperationId, Binding>> = {};
for (const operation of Object.keys(OPERATIONS) as OperationId[]) {
  if (!FOREIGN.has(operation)) bindings[operation] = plainBinding(operation);
}
for (const operation of ['chat', 'completions'] as const) {
  bindings[operation] = {
    ...plainBinding(operation),
    streamUsageOption: true,
    target: { extensions: new Set(['service_tier']) },
  };
}

/** A stored setting wins over the caller's header: it is the operator's account that is billed. */
function option(headers: string[], context: CallContext, header: string, setting: string): void {
  const value = textSetting(context.credentials, setting) ?? context.header(header);
  if (value !== undefined && value !== '') headers.push(header, value);
}

/** The shapes of Sluice's OpenAI dialect are this provider's own: bytes pass in both directions. */
export const openai: Provider = {
  id: 'openai',
  title: 'OpenAI',
  settings: settingsOf({
    openai_organization: headerValue.optional(),
    openai_project: headerValue.optional(),
    openai_beta: headerValue.optional(),
  }),
  secretSettings: [],
  needsKey: true,
  baseUrl: () => 'https://api.openai.com/v1',
  authorize(headers, context) {
    bearer(headers, context);
    option(headers, context, 'openai-organization', 'openai_organization');
    option(headers, context, 'openai-project', 'openai_project');
    option(headers, context, 'openai-beta', 'openai_beta');
  },
  bindings,
  passThrough: true,
};
