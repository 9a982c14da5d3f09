/** Files at Mistral. */
import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { FileObject } from '../../operations/training.ts';
import { multipartBody } from '../multipart.ts';
import type { AdapterContext, FilesAdapter } from '../training.ts';
import {
  bearerHeaders,
  idSegment,
  integerOf,
  invalidAnswer,
  jsonRequest,
  sent,
  sentObject,
  textOf,
  urlOf,
} from '../training-calls.ts';

const PURPOSES: ReadonlySet<string> = new Set(['fine-tune', 'batch']);
const RESULTS: ReadonlySet<string> = new Set(['batch_result', 'batch_error']);
const PAGE_SIZE = 100;
/** Head of the answer once the file has been sent. */
const UPLOAD_MS = 600_000;

/** Null: a file of a product that is not offered here (`ocr` …), which is not shown. */
function fileOf(body: JsonObject): FileObject | null {
  const id = textOf(body.id);
  if (id === null) throw invalidAnswer('a file', body);
  const { purpose, sample_type: sample } = body;
  if (typeof purpose !== 'string' || !PURPOSES.has(purpose)) return null;
  return {
    id,
    object: 'file',
    bytes: integerOf(body.bytes) ?? 0,
    created_at: integerOf(body.created_at) ?? 0,
    filename: textOf(body.filename) ?? '',
    purpose: typeof sample === 'string' && RESULTS.has(sample) ? 'batch_output' : purpose,
    status: 'processed',
  };
}

function shown(body: JsonObject): FileObject {
  const file = fileOf(body);
  if (file === null) throw new SluiceError('not_found', 'There is no file of this id.');
  return file;
}

async function pageOf(number: number, purpose: string | null, context: AdapterContext): Promise<JsonObject[]> {
  const url = urlOf(context.base, '/files', { page: number, page_size: PAGE_SIZE, purpose });
  const { data } = await sentObject(context, jsonRequest('GET', url, bearerHeaders(context)));
  if (!Array.isArray(data)) throw invalidAnswer('a list');
  return data.filter(isObject);
}

export const files: FilesAdapter = {
  purposes: PURPOSES,
  objectUris: false,
  async upload(file, context) {
    if (!PURPOSES.has(file.purpose)) {
      throw new SluiceError(
        'unsupported_parameter',
        `mistral-ai cannot keep files for ${JSON.stringify(file.purpose)}; use "fine-tune" or "batch".`,
        { param: 'purpose' },
      );
    }
    const form = multipartBody([['purpose', file.purpose]], { ...file, name: 'file' });
    const body = await sentObject(context, {
      method: 'POST',
      url: urlOf(context.base, '/files'),
      headers: [...bearerHeaders(context), 'accept', 'application/json', 'content-type', form.contentType],
      body: form.stream,
      ...(form.length === null ? null : { length: form.length }),
      timeoutMs: UPLOAD_MS,
    });
    return shown(body);
  },
  async list(purpose, context) {
    const asked = purpose === 'batch_output' ? 'batch' : purpose;
    if (asked !== null && !PURPOSES.has(asked)) return [];
    const found = new Map<string, FileObject>();
    for (let number = 0; ; number++) {
      const rows = await pageOf(number, asked, context);
      for (const row of rows) {
        // Files added meanwhile move others to the next page, where they are met again.
        const file = fileOf(row);
        if (file !== null && (purpose === null || file.purpose === purpose)) found.set(file.id, file);
      }
      if (rows.length < PAGE_SIZE) break;
    }
    return [...found.values()].sort((a, b) => b.created_at - a.created_at || (a.id < b.id ? 1 : -1));
  },
  async retrieve(id, context) {
    const url = urlOf(context.base, `/files/${idSegment(id)}`);
    return shown(await sentObject(context, jsonRequest('GET', url, bearerHeaders(context))));
  },
  async remove(id, context) {
    const url = urlOf(context.base, `/files/${idSegment(id)}`);
    const body = await sentObject(context, jsonRequest('DELETE', url, bearerHeaders(context)));
    if (body.deleted === false) throw invalidAnswer('the deletion that was asked for');
  },
  async content(id, context) {
    const url = urlOf(context.base, `/files/${idSegment(id)}/content`);
    const answer = await sent(context, { method: 'GET', url, headers: bearerHeaders(context), body: null });
    return {
      contentType: answer.headers['content-type'] ?? 'application/octet-stream',
      bytes: integerOf(answer.headers['content-length']),
      stream: answer.stream,
    };
  },
};
