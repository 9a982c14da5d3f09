import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type StrictRoute, type StrictUpstream, startStrictUpstream } from '../strict-upstream.ts';
import { type Received, sendJson } from '../upstream.ts';
import { type GcsState, gcs, googleError } from './gcs.ts';

const LABELS = z.record(z.string().regex(/^[a-z][a-z0-9_-]{0,63}$/), z.string().regex(/^[a-z0-9_-]{0,64}$/));
const GCS_URI = z.string().regex(/^gs:\/\/[a-z0-9._-]+\/.+$/);
const INT64 = z.string().regex(/^\d+$/);

const HYPER = {
  epochCount: INT64.optional(),
  learningRateMultiplier: z.number().optional(),
  adapterSize: z.string().optional(),
};
const SUPERVISED = z.strictObject({
  trainingDatasetUri: z.union([GCS_URI, z.string().regex(/^projects\/[^/]+\/locations\/[^/]+\/datasets\/[^/]+$/)]),
  validationDatasetUri: GCS_URI.optional(),
  hyperParameters: z.strictObject(HYPER).optional(),
  exportLastCheckpointOnly: z.boolean().optional(),
});
const PREFERENCE = z.strictObject({
  trainingDatasetUri: GCS_URI,
  validationDatasetUri: GCS_URI.optional(),
  hyperParameters: z.strictObject({ ...HYPER, beta: z.number().optional() }).optional(),
  exportLastCheckpointOnly: z.boolean().optional(),
});

/** What may be written of a TuningJob, v1. */
const TUNING_JOB = z
  .strictObject({
    baseModel: z
      .string()
      .regex(/^[a-z0-9.-]+(@[a-z0-9]+)?$/)
      .optional(),
    preTunedModel: z
      .strictObject({
        tunedModelName: z.string().regex(/^projects\/[^/]+\/locations\/[^/]+\/models\/[^/]+$/),
        checkpointId: z.string().optional(),
      })
      .optional(),
    tunedModelDisplayName: z.string().max(128).optional(),
    description: z.string().optional(),
    labels: LABELS.optional(),
    supervisedTuningSpec: SUPERVISED.optional(),
    preferenceOptimizationSpec: PREFERENCE.optional(),
  })
  .refine((job) => (job.baseModel === undefined) !== (job.preTunedModel === undefined), 'one source model')
  .refine(
    (job) => (job.supervisedTuningSpec === undefined) !== (job.preferenceOptimizationSpec === undefined),
    'one tuning spec',
  );

/** What may be written of a BatchPredictionJob from and to Cloud Storage, v1. */
const BATCH_JOB = z.strictObject({
  displayName: z.string().min(1).max(128),
  model: z.string().regex(/^(publishers\/[a-z]+\/models\/[^/]+|projects\/[^/]+\/locations\/[^/]+\/models\/[^/]+)$/),
  inputConfig: z.strictObject({
    instancesFormat: z.literal('jsonl'),
    gcsSource: z.strictObject({ uris: z.array(GCS_URI).min(1) }),
  }),
  instanceConfig: z.strictObject({ excludedFields: z.array(z.string()).optional() }).optional(),
  outputConfig: z.strictObject({
    predictionsFormat: z.literal('jsonl'),
    gcsDestination: z.strictObject({ outputUriPrefix: z.string().regex(/^gs:\/\/[a-z0-9._-]+(\/.*)?$/) }),
  }),
  labels: LABELS.optional(),
});

type Row = Record<string, unknown>;

export interface VertexUpstream extends StrictUpstream {
  /** Rows as the provider would answer them, newest first, by short id. */
  readonly jobs: Map<string, Row>;
  readonly batches: Map<string, Row>;
  readonly storage: GcsState;
  /** Runs before each page of a list is cut. */
  beforeList: () => void;
}

export const VERTEX_PARENT = 'projects/test-project/locations/us-central1';
/** The provider names resources by the number of the project. */
export const VERTEX_NUMBER = 'projects/123456789/locations/us-central1';

/** Puts a row in front, where the newest belongs. */
export function putFirst(map: Map<string, Row>, id: string, row: Row): void {
  const rest = [...map];
  map.clear();
  map.set(id, row);
  for (const [key, value] of rest) map.set(key, value);
}

/** Tuning and batch jobs of Vertex AI v1 in one region, with Cloud Storage at the same origin. */
export async function startVertex(token = 'test-key'): Promise<VertexUpstream> {
  const { state: storage, routes: storageRoutes } = gcs();
  const state = { jobs: new Map<string, Row>(), batches: new Map<string, Row>(), storage, beforeList: () => {} };
  let serial = 0;
  const collection = (name: string, map: Map<string, Row>, body: z.ZodType): StrictRoute[] => {
    const at = `/v1/${VERTEX_PARENT}/${name}`;
    const idIn = (request: Received): string => {
      const [last = ''] = (request.path.split('?')[0] ?? '').slice(at.length + 1).split(':');
      return last;
    };
    const found = (request: Received, response: ServerResponse, then: (row: Row) => void): void => {
      const row = map.get(idIn(request));
      if (row === undefined)
        sendJson(response, 404, googleError(404, `${name} ${idIn(request)} not found.`, 'NOT_FOUND'));
      else then(row);
    };
    return [
      {
        method: 'POST',
        path: new RegExp(`^${at}$`),
        body,
        answer(given, response) {
          const id = String(1000 + ++serial);
          const time = new Date(Date.UTC(2026, 0, 1) + 1000 * serial).toISOString();
          const row = {
            ...given,
            name: `${VERTEX_NUMBER}/${name}/${id}`,
            state: 'JOB_STATE_PENDING',
            createTime: time,
            updateTime: time,
          };
          putFirst(map, id, row);
          sendJson(response, 200, row);
        },
      },
      {
        method: 'GET',
        path: new RegExp(`^${at}$`),
        query: ['filter', 'pageSize', 'pageToken', 'readMask'],
        body: null,
        answer(_, response, request) {
          state.beforeList();
          const { searchParams } = new URL(request.path, 'http://vertex');
          const size = Number(searchParams.get('pageSize') ?? 50);
          if (size < 1 || size > 100) throw new Error(`pageSize ${size}`);
          // The token remembers the item it stands behind, as opaque tokens do.
          const rows = [...map];
          const behind = searchParams.get('pageToken');
          const from = behind === null ? 0 : rows.findIndex(([id]) => `token ${id}` === behind) + 1;
          const to = from + size;
          sendJson(response, 200, {
            ...(rows.length === 0 ? null : { [name]: rows.slice(from, to).map(([, row]) => row) }),
            ...(to < rows.length ? { nextPageToken: `token ${rows[to - 1]?.[0]}` } : null),
          });
        },
      },
      {
        method: 'GET',
        path: new RegExp(`^${at}/[A-Za-z0-9_-]+$`),
        body: null,
        answer: (_, response, request) => found(request, response, (row) => sendJson(response, 200, row)),
      },
      {
        method: 'POST',
        path: new RegExp(`^${at}/[A-Za-z0-9_-]+:cancel$`),
        body: z.strictObject({}),
        answer: (_, response, request) =>
          found(request, response, (row) => {
            if (/SUCCEEDED|FAILED|CANCELLED|EXPIRED/.test(String(row.state))) {
              sendJson(response, 400, googleError(400, 'The job is in a final state.', 'FAILED_PRECONDITION'));
            } else {
              row.state = 'JOB_STATE_CANCELLING';
              sendJson(response, 200, {});
            }
          }),
      },
    ];
  };
  const upstream = await startStrictUpstream({
    routes: [
      ...storageRoutes,
      ...collection('tuningJobs', state.jobs, TUNING_JOB),
      ...collection('batchPredictionJobs', state.batches, BATCH_JOB),
    ],
    headers: { authorization: new RegExp(`^Bearer ${token}$`) },
    optional: [],
    error: googleError,
  });
  return Object.defineProperties(upstream, {
    jobs: { value: state.jobs },
    batches: { value: state.batches },
    storage: { value: storage },
    beforeList: {
      get: () => state.beforeList,
      set: (value: () => void) => {
        state.beforeList = value;
      },
    },
  }) as VertexUpstream;
}
