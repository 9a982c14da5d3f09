/** The training adapter of Vertex AI over an upstream that keeps what it was sent. */
import { afterEach, beforeEach, expect } from 'vitest';
import { vertexAi } from '../../src/providers/vertex-ai/vertex-ai.ts';
import { type AdapterContextOptions, adapterContext, type TestContext } from './adapter-context.ts';
import { startVertex, type VertexUpstream } from './upstreams/vertex-ai.ts';

export const parts = () => {
  const { jobs, files, batches } = vertexAi.training ?? {};
  if (!jobs?.findByName || !files || !batches?.inputLine || !batches.findByName) throw new Error('a part is missing');
  const { findByName } = jobs;
  const { inputLine } = batches;
  return { jobs, files, batches, findByName, inputLine };
};
export const { jobs, files, batches, findByName, inputLine } = parts();

export const SETTINGS = { vertex_region: 'us-central1', vertex_project_id: 'test-project' };
export const BUCKET = { 'x-gateway-cloud-storage-bucket-name': 'bucket' };

export let upstream: VertexUpstream;
export let context: TestContext;
const opened: TestContext[] = [];

export function contextWith(more: Partial<AdapterContextOptions> = {}): TestContext {
  const made = adapterContext({ base: `${upstream.url}/v1`, settings: SETTINGS, headers: BUCKET, ...more });
  opened.push(made);
  return made;
}

export const idOf = (name: string): string => encodeURIComponent(`gs://bucket/${name}`);

export function putRows(name: string, rows: readonly unknown[]): void {
  const content = Buffer.from(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  const object = { content, contentType: 'application/jsonl', metadata: {}, timeCreated: '2026-01-01T00:00:00Z' };
  upstream.storage.buckets.get('bucket')?.set(name, object);
}

/** Starts an upstream for each test. */
export function useVertex(): void {
  beforeEach(async () => {
    upstream = await startVertex();
    upstream.storage.buckets.set('bucket', new Map());
    context = contextWith();
  });

  afterEach(async () => {
    for (const one of opened.splice(0)) await one.close();
    await upstream.stop();
    expect(upstream.faults).toEqual([]);
  });
}
