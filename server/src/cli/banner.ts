import type { Running } from '../compose.ts';
import type { Config } from '../config.ts';

const INLINE_ALLOWED = `Configs, hosts and provider tokens may be sent with each request here (block_inline_config is off, so that you can
  try things). To allow saved ones only, start with BLOCK_INLINE_CONFIG=true or change the organisation's settings.`;
const SAVED_ONLY = 'Only saved configs, providers and hosts may be used here (BLOCK_INLINE_CONFIG is true).';

/**
 * What a start prints; on the first run also the keys, once, and only on a terminal: anything else keeps what is printed,
 * as container logs do.
 */
export function bannerText(running: Running, config: Config, terminal: boolean): string {
  const { firstRun, url } = running;
  if (firstRun === null)
    return `\n  Sluice is listening on ${url}\n  API reference: ${url}/docs   Console: ${url}/console/ (sign-in link: npm run sluice -- console-link)\n\n`;
  if (!terminal) return firstRunElsewhere(url, config);
  return `
  Sluice is listening on ${url}

  This is its first run: it made an organisation, a workspace and these keys. They are shown once and are also in
  ${config.dataDir}/first-run.json (readable by you only).

    workspace key              ${firstRun.workspace_api_key}
    admin key                  ${firstRun.admin_api_key}
    operator key               ${firstRun.operator_api_key}

  The workspace key is for inference and for administering its workspace, keys and providers included; the admin key
  is for the organisation, the operator key for the installation.

  Make your first request; it needs no provider account:

    curl ${firstRun.base_url}/chat/completions \\
      -H "x-gateway-api-key: ${firstRun.workspace_api_key}" \\
      -H "content-type: application/json" \\
      -d '{"model": "@sandbox/echo", "stream": true, "messages": [{"role": "user", "content": "Hello, Sluice"}]}'

  Open the console (the link works once, for 15 minutes):

    ${firstRun.console_url}

  ${config.blockInlineConfig ? SAVED_ONLY : INLINE_ALLOWED}
  API reference: ${url}/docs

`;
}

/** The first run where the output is no terminal: where the keys are, and none of them. */
function firstRunElsewhere(url: string, { dataDir }: Config): string {
  const file = `${dataDir}/first-run.json`;
  return `
  Sluice is listening on ${url}

  This is its first run. The keys and the sign-in link for the console are in ${file} (readable by you only).
  Make your first request; it needs no provider account:

    curl ${url}/v1/chat/completions \\
      -H "x-gateway-api-key: $(node -p 'require("${file}").workspace_api_key')" \\
      -H "content-type: application/json" \\
      -d '{"model": "@sandbox/echo", "stream": true, "messages": [{"role": "user", "content": "Hello, Sluice"}]}'

  API reference: ${url}/docs

`;
}
