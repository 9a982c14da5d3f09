import { SluiceError } from '../kernel/errors.ts';

export interface Words {
  /** Words that are neither flags nor values of flags. */
  readonly plain: readonly string[];
  /** Values of the command's own flags. */
  readonly own: Readonly<Record<string, string | undefined>>;
  /** What is left: settings of the server. */
  readonly settings: readonly string[];
}

/**
 * Takes a command line apart: its words, the flags of the command itself (`--name value` or `--name=value`), and settings.
 * Throws SluiceError('validation') for a flag of the command without a value, or given twice.
 */
export function wordsOf(args: readonly string[], names: readonly string[]): Words {
  const plain: string[] = [];
  const settings: string[] = [];
  const own: Record<string, string> = {};
  for (let i = 0; i < args.length; i++) {
    const arg = args[i] ?? '';
    const [flag = '', inline] = arg.split(/=(.*)/s, 2);
    const name = names.find((one) => flag === `--${one}`);
    if (name === undefined) {
      if (!arg.startsWith('-')) plain.push(arg);
      else {
        settings.push(arg);
        // A setting without = has its value in the next word.
        const next = args[i + 1];
        if (inline === undefined && next !== undefined) {
          settings.push(next);
          i += 1;
        }
      }
      continue;
    }
    const value = inline ?? args[++i];
    if (value === undefined || value === '' || own[name] !== undefined)
      throw new SluiceError('validation', `--${name} needs one value.`);
    own[name] = value;
  }
  return { plain, own, settings };
}
