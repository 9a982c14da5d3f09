import { expect, it } from 'vitest';
import { workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { REDIRECTING_HEADERS } from '../provider-headers.ts';
import { requireSavedConfig } from './require-saved-config.ts';

function request(headers: Record<string, string>, blockInlineConfig = true) {
  const x = testExchange({ headers });
  x.request.snapshot = workspaceWith({ blockInlineConfig });
  return () => requireSavedConfig(x);
}

const inline = [
  ['x-gateway-config', '  {"retry":{}}', 'inline_config_blocked'],
  ['x-gateway-provider', 'openai', 'inline_provider_blocked'],
  ['x-gateway-custom-host', 'https://host.example', 'inline_custom_host_blocked'],
  ...REDIRECTING_HEADERS.map((name) => [name, 'a', 'inline_provider_url_blocked'] as const),
  ['x-gateway-forward-headers', 'x-own', 'inline_forward_headers_blocked'],
] as const;

it.each(inline)('where only what is saved may be used, %s: %s is refused and named', (name, value, reason) => {
  expect(request({ [name]: value })).toThrow(expect.objectContaining({ kind: 'inline_blocked', reason, param: name }));
});

it.each(inline)('where a request may say it itself, %s: %s is not refused', (name, value) => {
  expect(request({ [name]: value }, false)).not.toThrow();
});

it('names of what is saved are not refused', () => {
  expect(request({ 'x-gateway-config': 'pc-mine', 'x-gateway-provider': '@openai-prod' })).not.toThrow();
});

it('of several violations the first in the order of the guide is told', () => {
  const all = Object.fromEntries(inline.map(([name, value]) => [name, value]));
  expect(request(all)).toThrow(expect.objectContaining({ reason: 'inline_config_blocked' }));
});
