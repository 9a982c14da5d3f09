/** Arguments → configuration → composition → listen → drain. */
import { writeSync } from 'node:fs';
import { audit } from './cli/audit.ts';
import { backup } from './cli/backup.ts';
import { check } from './cli/check.ts';
import { consoleLink } from './cli/console-link.ts';
import { doctor } from './cli/doctor.ts';
import { help, printVersion } from './cli/help.ts';
import { installationKeys } from './cli/installation-keys.ts';
import { keys } from './cli/keys.ts';
import { openapi } from './cli/openapi.ts';
import { serve } from './cli/serve.ts';
import { userEmailCommand } from './cli/user-email.ts';
import { ConfigError, loadConfig } from './config.ts';
import { SluiceError } from './kernel/errors.ts';
import { nearest } from './kernel/nearest.ts';

/** Where a command may write: whole lines, at once, so that nothing is lost when the process ends right after. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
}

const output: Output = {
  out: (text) => void writeSync(1, text),
  err: (text) => void writeSync(2, text),
};

const COMMANDS: Readonly<Record<string, (args: readonly string[]) => unknown>> = {
  serve: (args) => serve(loadConfig(args), output),
  check: (args) => check(args, output),
  openapi: (args) => openapi(args, output),
  audit: (args) => audit(args, output),
  'console-link': (args) => consoleLink(args, output),
  keys: (args) => keys(args, output),
  'user-email': (args) => userEmailCommand(args, output),
  'operator-key': (args) => installationKeys('operator-key', args, output),
  'master-key': (args) => installationKeys('master-key', args, output),
  backup: (args) => backup(args, output),
  doctor: (args) => doctor(args, output),
  version: () => printVersion(output),
  help: () => help(output),
};

/** The command of a line, and what is behind it. Flags alone are settings of a server. */
function commandOf(args: readonly string[]): readonly [string, readonly string[]] {
  if (args.length === 0 || args.includes('--help') || args.includes('-h')) return ['help', []];
  if (args.includes('--version') || args.includes('-v')) return ['version', []];
  const [first = 'help', ...rest] = args;
  return first.startsWith('-') ? ['serve', args] : [first, rest];
}

/** Runs one command line; sets the exit code and never throws. */
export async function main(args: readonly string[]): Promise<void> {
  const [command, rest] = commandOf(args);
  try {
    const run = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined;
    if (run !== undefined) {
      await run(rest);
      return;
    }
    const meant = nearest(command, Object.keys(COMMANDS));
    output.err(`${command} is not a command of Sluice${meant === null ? '' : `; did you mean ${meant}?`}\n`);
    help(output);
    process.exitCode = 2;
  } catch (error) {
    // One line for what the operator can mend; the whole stack only for what is a fault of ours.
    const known = error instanceof ConfigError || error instanceof SluiceError;
    output.err(`sluice: ${known ? error.message : ((error as Error)?.stack ?? String(error))}\n`);
    // 1 is what `audit verify` says of a log that was changed.
    process.exit(known || command === 'audit' ? 2 : 1);
  }
}
