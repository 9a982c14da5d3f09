/** Arguments → configuration → composition → listen → drain. */
import { writeSync } from 'node:fs';
import { help, printVersion } from './cli/help.ts';
import type { Output } from './cli/output.ts';
import { ConfigError, loadConfig } from './config.ts';
import { SluiceError } from './kernel/errors.ts';
import { nearest } from './kernel/nearest.ts';

const output: Output = {
  out: (text) => void writeSync(1, text),
  err: (text) => void writeSync(2, text),
};

/** Each loads what it needs when it runs: a command that asks little does not read the code of the whole server. */
const COMMANDS: Readonly<Record<string, (args: readonly string[]) => unknown>> = {
  serve: async (args) => (await import('./cli/serve.ts')).serve(loadConfig(args), output),
  check: async (args) => (await import('./cli/check.ts')).check(args, output),
  openapi: async (args) => (await import('./cli/openapi.ts')).openapi(args, output),
  audit: async (args) => (await import('./cli/audit.ts')).audit(args, output),
  'console-link': async (args) => (await import('./cli/console-link.ts')).consoleLink(args, output),
  login: async (args) => (await import('./cli/sign-in.ts')).login(args, output),
  logout: async (args) => (await import('./cli/sign-in.ts')).logout(args, output),
  whoami: async (args) => (await import('./cli/sign-in.ts')).whoami(args, output),
  keys: async (args) => (await import('./cli/keys.ts')).keys(args, output),
  'user-email': async (args) => (await import('./cli/user-email.ts')).userEmailCommand(args, output),
  'operator-key': async (args) =>
    (await import('./cli/installation-keys.ts')).installationKeys('operator-key', args, output),
  'master-key': async (args) =>
    (await import('./cli/installation-keys.ts')).installationKeys('master-key', args, output),
  nodes: async (args) => (await import('./cli/nodes.ts')).nodes(args, output),
  backup: async (args) => (await import('./cli/backup.ts')).backup(args, output),
  doctor: async (args) => (await import('./cli/doctor.ts')).doctor(args, output),
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
    // One line for each thing that the operator can mend; the whole stack only for what is a fault of ours.
    const known = error instanceof ConfigError || error instanceof SluiceError;
    if (known) for (const line of error.message.split('\n')) output.err(`sluice: ${line}\n`);
    else output.err(`sluice: ${(error as Error)?.stack ?? String(error)}\n`);
    // 1 is what `audit verify` says of a log that was changed.
    process.exit(known || command === 'audit' ? 2 : 1);
  }
}
