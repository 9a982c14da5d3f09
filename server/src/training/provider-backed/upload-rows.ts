/** Rows of an upload in the format of the model they are for, converted as they stream by. */

import { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import type { BatchRequest } from '../../operations/training.ts';
import type { ObjectCall } from '../../runtime/object-call.ts';
import { convertDataset } from '../datasets/index.ts';
import { invalid } from '../fields.ts';
import { isFault, readBatchLine } from '../managed/batch-input.ts';
import { isBlank, linesOf } from '../managed/lines.ts';
import type { TrainingServices } from '../services.ts';
import type { Upload } from '../upload.ts';
import type { ProviderAccess } from './provider-access.ts';

const MODEL = 'x-gateway-provider-model';
const MAX_LINE_BYTES = 32 * 1024 * 1024;
const NAMED_LINES = 10;

/** The upload as it is to be stored. Its size is not known before the last row was converted. */
export function inModelFormat(
  upload: Upload,
  side: ProviderAccess,
  call: ObjectCall,
  services: Pick<TrainingServices, 'clock' | 'log'>,
): Upload {
  const { files, batches } = side.adapter;
  const format = files?.rowFormat;
  if (format === undefined || (upload.purpose !== 'fine-tune' && upload.purpose !== 'batch')) return upload;
  const model = call.header(MODEL);
  if (model === undefined || model === '') {
    throw invalid(
      MODEL,
      `Rows are stored in the format of the model they are for; name it in ${MODEL}. A file that has that format already is put into the bucket directly and named by its URI.`,
    );
  }
  call.named(model);
  let stream: Readable;
  if (upload.purpose === 'batch') {
    const convert = batches?.inputLine;
    if (convert === undefined) return upload;
    stream = Readable.from(records(upload.stream, model, convert), { objectMode: false });
  } else {
    const made = convertDataset(upload.stream, {
      format: format(model, side.context),
      kinds: ['chat', 'text'],
      clock: services.clock,
      log: services.log,
      signal: call.signal,
      name: upload.filename,
      owner: call.principal.organisationId,
    });
    // The stream fails with the same reason.
    made.report.catch(() => undefined);
    stream = made.stream;
  }
  return {
    ...upload,
    stream,
    bytes: null,
    async close() {
      stream.destroy();
      await upload.close();
    },
  };
}

const line = (endpoint: string, model: string): BatchRequest => ({
  input_file_id: '',
  endpoint,
  completion_window: '24h',
  metadata: null,
  model,
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
});

/** Batch lines as records; after the first that cannot be one nothing more is written, and up to ten are named. */
async function* records(
  source: AsyncIterable<Buffer>,
  model: string,
  convert: (line: JsonObject, batch: BatchRequest) => JsonObject,
): AsyncGenerator<Buffer> {
  let endpoint: string | null = null;
  const faults: string[] = [];
  for await (const found of linesOf(source, MAX_LINE_BYTES)) {
    if (isBlank(found) || faults.length >= NAMED_LINES) continue;
    // The first line says what the batch is for; the others must agree.
    endpoint ??= endpointIn(found.bytes);
    const read = readBatchLine(found, { endpoint, model, maxLineBytes: MAX_LINE_BYTES });
    try {
      if (isFault(read)) throw new SluiceError('invalid_request', read.message);
      const { custom_id, url, body } = read;
      const record = convert({ custom_id, method: 'POST', url, body }, line(url, model));
      if (faults.length === 0) yield Buffer.from(`${JSON.stringify(record)}\n`);
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      faults.push(`line ${found.number}: ${error.message}`);
    }
  }
  if (faults.length === 0) return;
  throw new SluiceError(
    'invalid_request',
    `The batch cannot be used: ${faults.join(' ')} Correct these lines and send the file again.`,
    {
      param: 'file',
      reason: 'invalid_dataset_row',
    },
  );
}

function endpointIn(bytes: Buffer): string {
  try {
    const { url } = parseJson(bytes.toString('utf8')) as { readonly url?: unknown };
    return typeof url === 'string' ? url : '/v1/chat/completions';
  } catch {
    return '/v1/chat/completions';
  }
}
