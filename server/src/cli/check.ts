import { existsSync } from 'node:fs';
import { effectiveSettings, loadConfig, unknownVariables } from '../config.ts';
import { loadKeyring } from '../store/keyring.ts';
import type { Output } from './output.ts';

/** `check`: reads the configuration as a start would, and prints each setting with where it comes from. */
export async function check(args: readonly string[], output: Output): Promise<void> {
  const { masterKey, masterKeyFile } = loadConfig(args);
  // A file that is missing is no fault of the configuration: the first start makes it.
  if (masterKey === null && existsSync(masterKeyFile)) await loadKeyring({ masterKeyFile, create: false });
  const settings = effectiveSettings(args);
  const width = Math.max(...settings.map(({ name }) => name.length));
  for (const { name, shown, from } of settings)
    output.out(`${name.padEnd(width)}  ${shown === null || shown === '' ? '(not set)' : shown}  [${from}]\n`);
  for (const line of unknownVariables()) output.err(`warning: ${line}\n`);
  output.out('The configuration is valid.\n');
}
