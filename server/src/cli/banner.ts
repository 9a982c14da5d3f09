import type { Running } from '../compose.ts';
import type { Config } from '../config.ts';

const INLINE_ALLOWED = `Configs, hosts and provider tokens may be sent with each request here (block_inline_config is off, so that you can
  try things). To allow saved ones only, start with BLOCK_INLINE_CONFIG=true or change the organisation's settings.`;
const SAVED_ONLY = 'Only saved configs, providers and hosts may be used here (BLOCK_INLINE_CONFIG is true).';

const BODIES_KEPT = `Logs keep the bodies of requests here, so that you can look at them (debug_log is 1). To keep none, start with
  SLUICE_LOG_BODIES=never, or set debug_log to 0 in the organisation's settings.`;
const BODIES_NEVER = 'Logs keep no bodies of requests (SLUICE_LOG_BODIES is never).';

const NO_CONSOLE = 'This installation has no console: it is not built (npm ci && npm run console builds it).';

/**
 * What a start prints; on the first run also the keys, once, and only on a terminal: anything else keeps what is printed,
 * as container logs do.
 */
export function bannerText(running: Running, config: Config, terminal: boolean): string {
  const { firstRun, url, console } = running;
  if (firstRun === null)
    return `\n  Sluice is listening on ${url}\n  API reference: ${url}/docs   ${console ? `Console: ${url}/console/ (sign-in link: npm run sluice -- console-link)` : NO_CONSOLE}\n\n`;
  if (!terminal) return firstRunElsewhere(running, config);
  return `
  Sluice is listening on ${url}

  This is its first run: it made an organisation, a workspace and these keys. They are shown once and are also in
  ${config.dataDir}/first-run.json (readable by you only).

    workspace key   ${firstRun.workspace_api_key}
                    Use this one in your app.
    admin key       ${firstRun.admin_api_key}
                    For administration scripts: it manages the whole organisation.
    operator key    ${firstRun.operator_api_key}
                    Keep this one offline: it manages the installation and all its organisations.

  Make your first request; it needs no provider account:

    curl ${firstRun.base_url}/chat/completions \\
      -H "x-gateway-api-key: ${firstRun.workspace_api_key}" \\
      -H "content-type: application/json" \\
      -d '{"model": "@sandbox/echo", "stream": true, "messages": [{"role": "user", "content": "Hello, Sluice"}]}'

  ${console ? `Open the console (the link works once, for 15 minutes):\n\n    ${firstRun.console_url}` : NO_CONSOLE}

  ${config.blockInlineConfig ? SAVED_ONLY : INLINE_ALLOWED}
  ${config.logBodies === 'never' ? BODIES_NEVER : BODIES_KEPT}
  API reference: ${url}/docs

`;
}

/** The first run where the output is no terminal: where the keys are, and none of them. */
function firstRunElsewhere({ url, console }: Running, { dataDir, logBodies }: Config): string {
  const file = `${dataDir}/first-run.json`;
  return `
  Sluice is listening on ${url}

  This is its first run. ${console ? 'The keys and the sign-in link for the console' : 'The keys'} are in ${file} (readable by you only).
  Make your first request; it needs no provider account:

    curl ${url}/v1/chat/completions \\
      -H "x-gateway-api-key: $(node -p 'require("${file}").workspace_api_key')" \\
      -H "content-type: application/json" \\
      -d '{"model": "@sandbox/echo", "stream": true, "messages": [{"role": "user", "content": "Hello, Sluice"}]}'

  ${logBodies === 'never' ? BODIES_NEVER : BODIES_KEPT}
  API reference: ${url}/docs

`;
}
