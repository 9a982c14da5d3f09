/** Batch files at accounts that several workspaces share: judged when they are uploaded, and again when a batch reads them. */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import { errorStatus } from '../../operations/dialects/errors.ts';
import type { BatchRequest } from '../../operations/training.ts';
import type { FileContent } from '../../providers/training.ts';
import { referencesOf } from '../../runtime/references.ts';
import { isMissing } from '../errors.ts';
import { judged } from '../line-objects.ts';
import { notFound, type ObjectOwnership } from '../object-ownership.ts';
import type { Upload } from '../upload.ts';
import type { ProviderAccess } from './provider-access.ts';

const PARAM = 'input_file_id';

/** The upload, which fails at the first line that names what is not the workspace's; others as they are. */
export function withOwnLines(upload: Upload, { ownership: ledger }: ProviderAccess): Upload {
  if (ledger?.shared !== true || upload.purpose !== 'batch') return upload;
  // A fault of a line closes the upload, which may then say that it was cut off.
  let wrong: SluiceError | null = null;
  async function* lines(owners: ObjectOwnership): AsyncGenerator<Buffer> {
    try {
      yield* judged(upload.stream, owners, 'file');
    } catch (error) {
      if (error instanceof SluiceError) wrong = error;
      throw error;
    }
  }
  const stream = Readable.from(lines(ledger), { objectMode: false });
  return {
    ...upload,
    stream,
    failed: () => wrong ?? upload.failed(),
    async close() {
      stream.destroy();
      await upload.close();
    },
  };
}

/** Throws 403 where a field of the batch itself, on a shared account, names lines that Sluice does not read. */
export function checkNames({ ownership: ledger }: ProviderAccess, batch: BatchRequest): void {
  if (ledger?.shared !== true) return;
  const { unknown } = referencesOf(batch.extra);
  if (unknown !== null) {
    throw closed(unknown, `${unknown} names lines that Sluice does not read`, `Leave ${unknown} out`);
  }
}

/**
 * Reads the file that a batch names from the provider and judges its lines. Nothing is noted of it: a file may have come
 * another way, may have been handed over since, and an object in a bucket may have changed. Throws 403 where it cannot be
 * read, 404 as for one request.
 *
 * @param most bytes that are read at most
 */
export async function checkLines(
  { adapter, context, ownership: ledger }: ProviderAccess,
  batch: BatchRequest,
  most: number,
) {
  if (ledger?.shared !== true) return;
  if (adapter.files === undefined) throw closed(PARAM, 'the provider does not give them', null);
  let content: FileContent;
  try {
    content = await adapter.files.content(batch.input_file_id, context);
  } catch (error) {
    if (isMissing(error)) throw notFound('file', PARAM);
    if (error instanceof SluiceError && [400, 403].includes(errorStatus(error))) {
      throw closed(PARAM, `the provider did not give them: ${error.message}`, UPLOAD);
    }
    throw error;
  }
  const { stream } = content;
  try {
    let size = 0;
    for await (const piece of judged(stream, ledger, PARAM)) {
      size += piece.length;
      if (size > most) throw closed(PARAM, `the file has more than ${most} bytes`, 'Use several files');
    }
  } finally {
    stream.destroy();
  }
}

const UPLOAD = 'Upload the file through POST /v1/files with the purpose batch';

/** @param remedy what also helps, beside an account that is not shared; null: nothing does */
function closed(param: string, why: string, remedy: string | null): SluiceError {
  const use = remedy === null ? 'Use' : `${remedy}, or use`;
  return new SluiceError(
    'forbidden',
    `The account is shared by several workspaces, and the lines of this batch cannot be checked: ${why}. ${use} an integration that only this workspace uses.`,
    { param },
  );
}
