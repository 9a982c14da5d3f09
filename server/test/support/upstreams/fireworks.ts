import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../upstream.ts';

export const FIREWORKS_ACCOUNT = 'accounts/acme';

const ID = z.string().regex(/^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/);
const DATASET = z.string().regex(/^accounts\/[a-z0-9-]+\/datasets\/[a-z0-9-]+$/);
const MODEL = z.string().regex(/^accounts\/[a-z0-9-]+\/models\/[A-Za-z0-9.-]+$/);

/** Settings of a training run; exactly one of the two models. */
const TRAINING = {
  baseModel: MODEL.optional(),
  warmStartFrom: MODEL.optional(),
  outputModel: MODEL.optional(),
  epochs: z.number().int().min(1).optional(),
  learningRate: z.number().optional(),
  batchSizeSamples: z.number().int().min(1).optional(),
};
const oneModel = (value: { baseModel?: string | undefined; warmStartFrom?: string | undefined }): boolean =>
  (value.baseModel === undefined) !== (value.warmStartFrom === undefined);

const SUPERVISED = z
  .strictObject({
    ...TRAINING,
    dataset: DATASET,
    evaluationDataset: DATASET.optional(),
    displayName: z.string().optional(),
  })
  .refine(oneModel, 'one source model');

const DPO = z.strictObject({
  dataset: DATASET,
  displayName: z.string().optional(),
  lossConfig: z.strictObject({
    method: z.literal('DPO'),
    dpo: z.strictObject({ beta: z.number().gt(0).lt(0.5) }).optional(),
  }),
  trainingConfig: z.strictObject(TRAINING).refine(oneModel, 'one source model'),
});

const BATCH = z.strictObject({
  model: MODEL,
  inputDatasetId: DATASET,
  outputDatasetId: DATASET.optional(),
  displayName: z.string().optional(),
});

type Row = Record<string, unknown>;

export interface FireworksUpstream extends StrictUpstream {
  /** Rows as the provider would answer them, in no order, by short id. */
  readonly supervised: Map<string, Row>;
  readonly dpo: Map<string, Row>;
  readonly batches: Map<string, Row>;
  readonly datasets: Map<string, Row>;
  /** Content by dataset and file name. */
  readonly contents: Map<string, Map<string, Buffer>>;
  /** The object store behind signed addresses: refuses every header that could carry a key. */
  readonly store: FakeUpstream;
  /** False: jobs have no route to cancel them. */
  cancels: boolean;
  /** Status of the next uploads, direct or to the store. */
  uploadStatus: number;
  /** Runs before each page of a list is cut. */
  beforeList: () => void;
}

/** The control plane wraps nothing: gRPC number, message, details. */
const error = (status: number, message: string): Row => ({
  code: { 404: 5, 409: 6, 501: 12 }[status] ?? 3,
  message,
  details: [],
});

/** Datasets, fine-tuning jobs and batches of one Fireworks account, with an object store beside them. */
export async function startFireworks(key = 'test-key'): Promise<FireworksUpstream> {
  const state = {
    supervised: new Map<string, Row>(),
    dpo: new Map<string, Row>(),
    batches: new Map<string, Row>(),
    datasets: new Map<string, Row>(),
    contents: new Map<string, Map<string, Buffer>>(),
    cancels: true,
    uploadStatus: 200,
    beforeList: (): void => {},
  };
  let serial = 0;
  const store = await startUpstream((request, response) => {
    const { pathname, searchParams } = new URL(request.path, 'http://store');
    const [, dataset = '', name = ''] = pathname.split('/').map(decodeURIComponent);
    const keyed = Object.keys(request.headers).some((one) => /authorization|api-key|cookie/.test(one));
    const fault = (what: string): void => {
      upstream.faults.push(`store: ${request.method} ${request.path}: ${what}`);
      response.writeHead(403).end();
    };
    if (keyed || searchParams.get('signature') !== 'good') return fault('signature');
    if (request.method === 'GET') {
      const content = state.contents.get(dataset)?.get(name);
      if (content === undefined) return fault('no such object');
      response.writeHead(200, { 'content-length': content.length }).end(content);
      return;
    }
    if (request.method !== 'PUT') return fault('method');
    const size = request.body.length;
    if (request.headers['content-type'] !== 'application/octet-stream') return fault('content-type');
    if (request.headers['x-goog-content-length-range'] !== `${size},${size}`) return fault('range');
    if (searchParams.get('size') !== String(size)) return fault(`size ${size}`);
    if (state.uploadStatus === 200) state.contents.set(dataset, new Map([[name, request.body]]));
    response.writeHead(state.uploadStatus).end();
  });
  const signed = (dataset: string, name: string, more = ''): string =>
    `${store.url}/${encodeURIComponent(dataset)}/${encodeURIComponent(name)}?signature=good${more}`;

  const at = `/v1/${FIREWORKS_ACCOUNT}`;
  const idIn = (request: Received): string => {
    const last = (request.path.split('?')[0] ?? '').split('/').at(-1) ?? '';
    return decodeURIComponent(last.split(':')[0] ?? '');
  };
  const collection = (name: string, map: Map<string, Row>, idQuery: string | null, body: z.ZodType): StrictRoute[] => {
    const found = (request: Received, response: ServerResponse, then: (row: Row) => void): void => {
      const row = map.get(idIn(request));
      if (row === undefined) sendJson(response, 404, error(404, `${name}/${idIn(request)} not found`));
      else then(row);
    };
    const create = (given: Row, response: ServerResponse, request: Received): void => {
      const asked = idQuery === null ? given.datasetId : new URL(request.path, 'http://f').searchParams.get(idQuery);
      const id = typeof asked === 'string' ? ID.parse(asked) : `job-${++serial}`;
      if (map.has(id)) {
        sendJson(response, 409, error(409, `${name}/${id} exists already`));
        return;
      }
      const time = new Date(Date.UTC(2026, 0, 1) + 1000 * ++serial).toISOString();
      const fields = idQuery === null ? (given.dataset as Row) : given;
      const row: Row = {
        ...fields,
        name: `${FIREWORKS_ACCOUNT}/${name}/${id}`,
        createTime: time,
        updateTime: time,
        state: idQuery === null ? 'UPLOADING' : 'JOB_STATE_CREATING',
        status: { code: 'OK', message: '' },
      };
      map.set(id, row);
      sendJson(response, 200, row);
    };
    return [
      {
        method: 'POST',
        path: new RegExp(`^${at}/${name}$`),
        query: idQuery === null ? [] : [idQuery],
        body,
        answer: create,
      },
      {
        method: 'GET',
        path: new RegExp(`^${at}/${name}$`),
        query: ['pageSize', 'pageToken', 'orderBy', 'filter', 'readMask'],
        body: null,
        answer(_, response, request) {
          state.beforeList();
          const query = new URL(request.path, 'http://f').searchParams;
          if (query.get('orderBy') !== 'create_time desc') throw new Error('orderBy');
          const size = Math.min(200, Number(query.get('pageSize') ?? 50));
          const time = (row: Row): number => Date.parse(String(row.createTime));
          const rows = [...map].sort(([, a], [, b]) => time(b) - time(a));
          const behind = query.get('pageToken');
          // The token remembers the item it stands behind and the parameters it was made with.
          const from = behind === null ? 0 : rows.findIndex(([id]) => `${size} ${id}` === behind) + 1;
          if (behind !== null && from === 0) throw new Error('pageToken');
          const to = from + size;
          sendJson(response, 200, {
            [name]: rows.slice(from, to).map(([, row]) => row),
            nextPageToken: to < rows.length ? `${size} ${rows[to - 1]?.[0]}` : '',
            totalSize: rows.length,
          });
        },
      },
      {
        method: 'GET',
        path: new RegExp(`^${at}/${name}/[^/:]+$`),
        body: null,
        answer: (_, response, request) => found(request, response, (row) => sendJson(response, 200, row)),
      },
    ];
  };
  const cancelRoute = (name: string, map: Map<string, Row>): StrictRoute => ({
    method: 'POST',
    path: new RegExp(`^${at}/${name}/[^/:]+:cancel$`),
    body: z.strictObject({}),
    answer(_, response, request) {
      const row = map.get(idIn(request));
      if (!state.cancels) sendJson(response, 501, error(501, 'Method Not Allowed'));
      else if (row === undefined) sendJson(response, 404, error(404, `${name}/${idIn(request)} not found`));
      else {
        row.state = 'JOB_STATE_CANCELLING';
        sendJson(response, 200, {});
      }
    },
  });
  const dataset = (request: Received, response: ServerResponse, then: (id: string, row: Row) => void): void => {
    const row = state.datasets.get(idIn(request));
    if (row === undefined) sendJson(response, 404, error(404, 'dataset not found'));
    else then(idIn(request), row);
  };
  const verb = (name: string): RegExp => new RegExp(`^${at}/datasets/[^/:]+:${name}$`);
  const routes: StrictRoute[] = [
    ...collection('supervisedFineTuningJobs', state.supervised, 'supervisedFineTuningJobId', SUPERVISED),
    ...collection('dpoJobs', state.dpo, 'dpoJobId', DPO),
    ...collection('batchInferenceJobs', state.batches, 'batchInferenceJobId', BATCH),
    ...collection(
      'datasets',
      state.datasets,
      null,
      z.strictObject({
        datasetId: ID,
        dataset: z.strictObject({
          displayName: z.string(),
          userUploaded: z.strictObject({}),
          format: z.enum(['CHAT', 'COMPLETION', 'RL']),
        }),
      }),
    ),
    cancelRoute('supervisedFineTuningJobs', state.supervised),
    cancelRoute('dpoJobs', state.dpo),
    {
      method: 'DELETE',
      path: new RegExp(`^${at}/datasets/[^/:]+$`),
      body: null,
      answer: (_, response, request) =>
        dataset(request, response, (id) => {
          state.datasets.delete(id);
          state.contents.delete(id);
          sendJson(response, 200, {});
        }),
    },
    {
      method: 'POST',
      path: verb('upload'),
      form: true,
      chunked: true,
      body: z.strictObject({ file: z.strictObject({ bytes: z.number() }) }),
      answer: (_, response, request) =>
        dataset(request, response, async (id, row) => {
          if (state.uploadStatus !== 200) {
            sendJson(response, state.uploadStatus, error(state.uploadStatus, 'The upload failed'));
            return;
          }
          const form = await new Response(new Uint8Array(request.body), {
            headers: { 'content-type': String(request.headers['content-type']) },
          }).formData();
          const file = form.get('file') as File;
          state.contents.set(id, new Map([[file.name, Buffer.from(await file.arrayBuffer())]]));
          row.state = 'READY';
          sendJson(response, 200, {
            id,
            bytes: file.size,
            created_at: 1,
            filename: file.name,
            object: 'file',
            purpose: 'fine-tune',
          });
        }),
    },
    {
      method: 'POST',
      path: verb('getUploadEndpoint'),
      body: z.strictObject({ filenameToSize: z.record(z.string(), z.string().regex(/^\d+$/)) }),
      answer: (body, response, request) =>
        dataset(request, response, (id) => {
          const sizes = Object.entries(body.filenameToSize as Record<string, string>);
          const urls = sizes.map(([name, size]) => [name, signed(id, name, `&size=${size}`)]);
          sendJson(response, 200, { filenameToSignedUrls: Object.fromEntries(urls) });
        }),
    },
    {
      method: 'POST',
      path: verb('validateUpload'),
      body: z.strictObject({}),
      answer: (_, response, request) =>
        dataset(request, response, (id, row) => {
          if (!state.contents.has(id)) sendJson(response, 400, error(400, 'nothing was uploaded'));
          else {
            row.state = 'READY';
            sendJson(response, 200, {});
          }
        }),
    },
    {
      method: 'GET',
      path: verb('getDownloadEndpoint'),
      body: null,
      answer: (_, response, request) =>
        dataset(request, response, (id) => {
          const names = [...(state.contents.get(id)?.keys() ?? [])];
          const urls = names.map((name) => [name, signed(id, name)]);
          sendJson(response, 200, { filenameToSignedUrls: Object.fromEntries(urls) });
        }),
    },
  ];
  const upstream = await startStrictUpstream({
    routes,
    headers: { authorization: new RegExp(`^Bearer ${key}$`) },
    optional: [],
    error,
  });
  const { stop } = upstream;
  return Object.defineProperties(upstream, {
    supervised: { value: state.supervised },
    dpo: { value: state.dpo },
    batches: { value: state.batches },
    datasets: { value: state.datasets },
    contents: { value: state.contents },
    store: { value: store },
    cancels: { set: (value: boolean) => (state.cancels = value) },
    uploadStatus: { set: (value: number) => (state.uploadStatus = value) },
    beforeList: { set: (value: () => void) => (state.beforeList = value) },
    stop: { value: async () => void (await Promise.all([stop(), store.stop()])) },
  }) as FireworksUpstream;
}
