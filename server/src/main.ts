/** Arguments → configuration → composition → listen → drain. */
import { writeSync } from 'node:fs';
import { audit } from './cli/audit.ts';
import { consoleLink } from './cli/console-link.ts';
import { help } from './cli/help.ts';
import { openapi } from './cli/openapi.ts';
import { serve } from './cli/serve.ts';
import { ConfigError, loadConfig } from './config.ts';
import { SluiceError } from './kernel/errors.ts';

/** Where a command may write: whole lines, at once, so that nothing is lost when the process ends right after. */
export interface Output {
  out(text: string): void;
  err(text: string): void;
}

const output: Output = {
  out: (text) => void writeSync(1, text),
  err: (text) => void writeSync(2, text),
};

/** Runs one command line; sets the exit code and never throws. */
export async function main(args: readonly string[]): Promise<void> {
  const [command = 'serve', ...rest] = args[0]?.startsWith('-') ? ['serve', ...args] : args;
  if (args.includes('--help') || args.includes('-h')) return help(output);
  try {
    switch (command) {
      case 'serve':
        return await serve(loadConfig(rest), output);
      case 'check':
        loadConfig(rest);
        output.out('The configuration is valid.\n');
        return;
      case 'openapi':
        return await openapi(rest, output);
      case 'audit':
        return await audit(rest, output);
      case 'console-link':
        return await consoleLink(rest, output);
      case 'help':
        return help(output);
      default:
        output.err(`${command} is not a command of Sluice.\n`);
        help(output);
        process.exitCode = 2;
    }
  } catch (error) {
    // One line for what the operator can mend; the whole stack only for what he cannot.
    const known = error instanceof ConfigError || error instanceof SluiceError;
    output.err(`sluice: ${known ? error.message : ((error as Error)?.stack ?? String(error))}\n`);
    // 1 is what `audit verify` says of a log that was changed.
    process.exit(known || command === 'audit' ? 2 : 1);
  }
}
