/** What the sandbox asks of a training file: the same as of one that Sluice keeps, so that its tokens are those of an estimate. */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { loadTokenizer } from '../../operations/tokens.ts';
import { type DatasetReport, isValid, problemsText, type ScanContext, validateDataset } from '../datasets/index.ts';

export interface SandboxDataset {
  readonly rows: number;
  /** Of one pass, by the tokeniser of estimates. */
  readonly tokens: number;
  /** Of the bytes, hexadecimal. */
  readonly digest: string;
  /** What is wrong, naming lines and nothing of what they hold; null when it is good. */
  readonly fault: string | null;
}

/** Reads a training or validation file for a method to its end. */
export async function checkDataset(
  stream: Readable,
  method: 'supervised' | 'dpo',
  context: ScanContext,
): Promise<SandboxDataset> {
  // The sandbox counts what it answers in this thread, too: a small file then needs no other one.
  await loadTokenizer();
  const digest = createHash('sha256');
  const read = Readable.from(
    hashed(stream, (bytes) => digest.update(bytes)),
    { objectMode: false },
  );
  const kinds = method === 'dpo' ? (['preference'] as const) : (['chat', 'text'] as const);
  const { report, fault } = await scanned(() =>
    validateDataset(read, { ...context, kinds, format: 'openai', countTokens: true }),
  );
  return { rows: report?.rows ?? 0, tokens: report?.tokens ?? 0, digest: digest.digest('hex'), fault };
}

/** What is wrong with the rows of an uploaded file whatever it will be used for; null when nothing is. */
export async function faultOf(stream: Readable, context: ScanContext): Promise<string | null> {
  const { fault } = await scanned(() => validateDataset(stream, context));
  return fault;
}

async function scanned(
  scan: () => Promise<DatasetReport>,
): Promise<{ readonly report: DatasetReport | null; readonly fault: string | null }> {
  try {
    const report = await scan();
    return { report, fault: isValid(report) ? null : `${problemsText(report)}.` };
  } catch (error) {
    // The content is at fault, and would be again.
    if (error instanceof SluiceError && error.reason === 'invalid_dataset_row')
      return { report: null, fault: error.message };
    throw error;
  }
}

async function* hashed(stream: Readable, add: (bytes: Buffer) => void): AsyncGenerator<Buffer> {
  for await (const bytes of stream as AsyncIterable<Buffer>) {
    add(bytes);
    yield bytes;
  }
}
