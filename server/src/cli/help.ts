import { readFileSync } from 'node:fs';
import type { Output } from './output.ts';

const PACKAGE = new URL('../../package.json', import.meta.url);

/** The version of this build. */
export function version(): string {
  return (JSON.parse(readFileSync(PACKAGE, 'utf8')) as { version: string }).version;
}

export function printVersion(output: Output): void {
  output.out(`sluice ${version()} (Node.js ${process.versions.node})\n`);
}

export function help(output: Output): void {
  output.out(`Sluice, an AI gateway with its own control plane.

  npm start                          start the gateway
  npm run sluice -- check            check the configuration and print each setting
  npm run sluice -- doctor           check the installation: data directory, stores, keys, disk, console
  npm run sluice -- console-link     make a new one-time sign-in link for the console, for the first owner
                    (… ada@x.example: for the user with this e-mail address)
  npm run sluice -- user-email A B   change the address of a user from A to B
  npm run sluice -- login            sign in to a Sluice server in a browser (--server URL: one elsewhere)
  npm run sluice -- whoami           print who is signed in, and where
  npm run sluice -- logout           end that sign-in, and forget its tokens
  npm run sluice -- keys create      make an API key with all rights of its kind and print it once
                    (--workspace SLUG: for this workspace; --organisation ID: for its administration)
  npm run sluice -- backup DIR       copy the data of a running or stopped node to DIR
  npm run sluice -- audit verify     check that nobody changed the audit log (--organisation ID: one only)
  npm run sluice -- operator-key list   list the operator keys (rotate: make a new one; revoke ID: end one)
  npm run sluice -- master-key rewrap   wrap all data keys with the newest master key (status: count them by master key)
  npm run sluice -- nodes list       list the nodes whose records all others wait for (give-up ID: wait for one no more)
  npm run sluice -- openapi          write docs/openapi.json (--check: compare only)
  npm run sluice -- --version        print the version

Settings come from the environment, sluice.config.json, or flags of the same names (--port 0 is SLUICE_PORT=0).
`);
}
