import type { CallContext } from '../provider.ts';
import { textSetting } from '../settings.ts';

type Account = Pick<CallContext, 'credentials' | 'header'>;

/** A stored setting wins over the caller's header: it is the operator's account that is billed. */
function option(headers: string[], context: Account, header: string, setting: string): void {
  const value = textSetting(context.credentials, setting) ?? context.header(header);
  if (value !== undefined && value !== '') headers.push(header, value);
}

/** Pushes the headers that name organisation, project and beta features of an account. */
export function openAiOptions(headers: string[], context: Account): void {
  option(headers, context, 'openai-organization', 'openai_organization');
  option(headers, context, 'openai-project', 'openai_project');
  option(headers, context, 'openai-beta', 'openai_beta');
}
