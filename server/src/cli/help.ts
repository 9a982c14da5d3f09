import type { Output } from '../main.ts';

export function help(output: Output): void {
  output.out(`Sluice, an AI gateway with its own control plane.

  npm start                          start the gateway
  npm run sluice -- check            check the configuration
  npm run sluice -- console-link     make a new one-time sign-in link for the console, for the first owner
                    (… ada@x.example: for the user with this e-mail address)
  npm run sluice -- audit verify     check that nobody changed the audit log (--organisation ID: one only)
  npm run sluice -- openapi          write docs/openapi.json (--check: compare only)

Settings come from the environment, sluice.config.json, or flags of the same names (--port 0 is SLUICE_PORT=0).
`);
}
