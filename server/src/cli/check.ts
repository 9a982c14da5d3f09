import { effectiveSettings, unknownVariables } from '../config.ts';
import type { Output } from '../main.ts';

/** `check`: reads the configuration as a start would, and prints each setting with where it comes from. */
export function check(args: readonly string[], output: Output): void {
  const settings = effectiveSettings(args);
  const width = Math.max(...settings.map(({ name }) => name.length));
  for (const { name, shown, from } of settings)
    output.out(`${name.padEnd(width)}  ${shown === null || shown === '' ? '(not set)' : shown}  [${from}]\n`);
  for (const line of unknownVariables()) output.err(`warning: ${line}\n`);
  output.out('The configuration is valid.\n');
}
