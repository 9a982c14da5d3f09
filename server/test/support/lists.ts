import type { Readable } from 'node:stream';
import type { BatchRequest, Page } from '../../src/operations/training.ts';

/** Ids of every item of a list, page by page. */
export async function walk<T extends { readonly id: string }>(
  list: (after: string | null) => Promise<Page<T>>,
): Promise<string[]> {
  const ids: string[] = [];
  for (;;) {
    const page = await list(ids.at(-1) ?? null);
    ids.push(...page.data.map((one) => one.id));
    if (!page.has_more) return ids;
  }
}

export async function readText(stream: Readable): Promise<string> {
  const parts: Buffer[] = [];
  for await (const piece of stream) parts.push(Buffer.from(piece));
  return Buffer.concat(parts).toString('utf8');
}

/** JSON lines of a stream. */
export async function readLines(stream: Readable): Promise<unknown[]> {
  const text = await readText(stream);
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line));
}

/** A batch of chat lines with nothing optional. */
export const batchRequest = (fields: Partial<BatchRequest> = {}): BatchRequest => ({
  input_file_id: 'file-in',
  endpoint: '/v1/chat/completions',
  completion_window: '24h',
  metadata: null,
  model: null,
  job_name: null,
  role_arn: null,
  output_data_config: null,
  extra: {},
  body: {},
  ...fields,
});
