import type { ServerResponse } from 'node:http';
import { z } from 'zod';
import { type AwsKeys, signatureFault } from '../sigv4.ts';
import { type FakeUpstream, type Received, sendJson, startUpstream } from '../upstream.ts';

export const AWS_KEYS: AwsKeys = { accessKeyId: 'AKIDBEDROCK', secretAccessKey: 'bedrock-secret-canary' };
/** What the fake's STS gives for a role. */
export const ROLE_KEYS: AwsKeys = {
  accessKeyId: 'ASIAROLE',
  secretAccessKey: 'role-secret-canary',
  sessionToken: 'role-session-token+/=',
};
export const BEDROCK_KEY = 'bedrock-api-key-canary';
export const BEDROCK_REGION = 'eu-central-1';
export const ACCOUNT = '123456789012';
export const ROLE = `arn:aws:iam::${ACCOUNT}:role/bedrock-tuner`;

export type Fields = Record<string, unknown>;

const s3Uri = z
  .string()
  .max(1024)
  .regex(/^s3:\/\/[a-z0-9][-.a-z0-9]{1,61}[a-z0-9](?:\/[-!_*'().a-z0-9A-Z]+(?:\/[-!_*'().a-z0-9A-Z]+)*)?\/?$/);
const roleArn = z.string().regex(/^arn:aws(-[^:]+)?:iam::([0-9]{12})?:role\/.+$/);
const token = z.string().regex(/^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,256}$/);
const tagText = z.string().regex(/^[a-zA-Z0-9\s._:/=+@-]*$/);
const tags = z
  .array(z.strictObject({ key: tagText.min(1).max(128), value: tagText.max(256) }))
  .min(1)
  .max(200);

const createJob = z.strictObject({
  jobName: z
    .string()
    .max(63)
    .regex(/^[a-zA-Z0-9](-*[a-zA-Z0-9+\-.])*$/),
  customModelName: z
    .string()
    .max(63)
    .regex(/^([0-9a-zA-Z][_-]?){1,63}$/),
  roleArn,
  clientRequestToken: token.optional(),
  baseModelIdentifier: z.string().min(1).max(2048),
  customizationType: z.enum(['FINE_TUNING', 'CONTINUED_PRE_TRAINING', 'DISTILLATION']).optional(),
  jobTags: tags.optional(),
  trainingDataConfig: z.strictObject({ s3Uri }),
  validationDataConfig: z.strictObject({ validators: z.array(z.strictObject({ s3Uri })).min(1).max(10) }).optional(),
  outputDataConfig: z.strictObject({ s3Uri }),
  hyperParameters: z.record(z.string(), z.string()).optional(),
});

const createBatch = z.strictObject({
  jobName: z
    .string()
    .regex(/^[a-zA-Z0-9]{1,63}(-*[a-zA-Z0-9+\-.]){0,63}$/)
    .max(63),
  roleArn,
  clientRequestToken: token.optional(),
  modelId: z.string().min(1).max(2048),
  modelInvocationType: z.enum(['InvokeModel', 'Converse']).optional(),
  inputDataConfig: z.strictObject({
    s3InputDataConfig: z.strictObject({ s3Uri, s3InputFormat: z.literal('JSONL').optional() }),
  }),
  outputDataConfig: z.strictObject({
    s3OutputDataConfig: z.strictObject({ s3Uri, s3EncryptionKeyId: z.string().optional() }),
  }),
  timeoutDurationInHours: z.int().min(24).max(168).optional(),
  tags: tags.optional(),
});

const assumeRole = z.strictObject({
  Action: z.literal('AssumeRole'),
  Version: z.literal('2011-06-15'),
  RoleArn: roleArn,
  RoleSessionName: z.string().regex(/^[\w+=,.@-]{2,64}$/),
  ExternalId: z.string().min(2).max(1224).optional(),
  DurationSeconds: z.string().regex(/^\d+$/),
});
const webIdentity = assumeRole
  .omit({ ExternalId: true })
  .extend({ Action: z.literal('AssumeRoleWithWebIdentity'), WebIdentityToken: z.string().min(4).max(20_000) });

export interface Failure {
  readonly status: number;
  readonly name: string;
  readonly message: string;
}

export interface BedrockUpstream extends FakeUpstream {
  /** What did not fit the published definitions; a test that leaves any has failed. */
  readonly faults: string[];
  /** Body of the last create call. */
  readonly last: Fields;
  /** Customization jobs as Get answers them, newest last. */
  readonly jobs: Fields[];
  readonly batches: Fields[];
  /** Tags by ARN. */
  readonly tags: Map<string, unknown>;
  /** Form bodies of STS calls. */
  readonly roles: Fields[];
  /** An error to answer with instead: `GET /model-customization-jobs`. */
  fail: (call: string) => Failure | null;
  /** Adds a finished or running job. */
  addJob(fields: Fields): Fields;
  addBatch(fields: Fields): Fields;
}

export interface BedrockOptions {
  /** Milliseconds since the epoch, for signatures and new jobs. */
  readonly now: () => number;
}

const ARN = `arn:aws:bedrock:${BEDROCK_REGION}:${ACCOUNT}`;
const HEADERS = new Set([
  'host',
  'connection',
  'accept',
  'content-type',
  'content-length',
  'authorization',
  'x-amz-date',
  'x-amz-security-token',
  'x-amz-content-sha256',
]);
const LIST = ['maxResults', 'nextToken', 'sortBy', 'sortOrder', 'statusEquals', 'nameContains'];

/** Bedrock's control plane and STS on loopback: both check signature, path, query, headers and body. */
export async function startBedrock(options: BedrockOptions): Promise<BedrockUpstream> {
  const faults: string[] = [];
  const jobs: Fields[] = [];
  const batches: Fields[] = [];
  const tagged = new Map<string, unknown>();
  const roles: Fields[] = [];
  let last: Fields = {};
  let made = 0;

  const iso = (): string => new Date(options.now()).toISOString();
  const id = (): string => (made++).toString(36).padStart(12, '0');

  function addJob(fields: Fields): Fields {
    const jobArn = `${ARN}:model-customization-job/amazon.nova-lite-v1:0:300k/${id()}`;
    const job: Fields = {
      jobArn,
      jobName: `job-${made}`,
      outputModelName: 'tuned',
      roleArn: ROLE,
      status: 'InProgress',
      creationTime: iso(),
      lastModifiedTime: iso(),
      baseModelArn: `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/amazon.nova-lite-v1:0:300k`,
      customizationType: 'FINE_TUNING',
      hyperParameters: { epochCount: '2' },
      trainingDataConfig: { s3Uri: 's3://my-bucket/train.jsonl' },
      validationDataConfig: { validators: [] },
      outputDataConfig: { s3Uri: 's3://my-bucket/out/' },
      ...fields,
    };
    jobs.push(job);
    return job;
  }

  function addBatch(fields: Fields): Fields {
    const jobArn = `${ARN}:model-invocation-job/${id()}`;
    const batch: Fields = {
      jobArn,
      jobName: `batch-${made}`,
      modelId: `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/amazon.nova-lite-v1:0`,
      roleArn: ROLE,
      status: 'InProgress',
      submitTime: iso(),
      lastModifiedTime: iso(),
      jobExpirationTime: new Date(options.now() + 86_400_000).toISOString(),
      timeoutDurationInHours: 24,
      inputDataConfig: { s3InputDataConfig: { s3Uri: 's3://my-bucket/in/rows.jsonl', s3InputFormat: 'JSONL' } },
      outputDataConfig: { s3OutputDataConfig: { s3Uri: 's3://my-bucket/out/' } },
      ...fields,
    };
    batches.push(batch);
    return batch;
  }

  const fails = (status: number, name: string, message: string): Failure => ({ status, name, message });
  const missing = (): Failure => fails(404, 'ResourceNotFoundException', 'The provided job identifier is invalid.');

  function listed(
    all: readonly Fields[],
    query: URLSearchParams,
    time: string,
    before: string,
    summary: readonly string[],
  ): { rows: Fields[]; nextToken?: string } {
    const most = Number(query.get('maxResults') ?? 100);
    if (most < 1 || most > 1000) throw new Error(`maxResults ${most}`);
    if (query.get('sortBy') !== 'CreationTime' || query.get('sortOrder') !== 'Descending') throw new Error('the order');
    const limit = query.get(before);
    if (limit !== null && new Date(limit).toISOString() !== limit) throw new Error(`${before} ${limit}`);
    const name = query.get('nameContains') ?? '';
    const rows = all
      .filter((row) => limit === null || Date.parse(String(row[time])) < Date.parse(limit))
      .filter((row) => String(row.jobName).includes(name))
      .map((row, index) => ({ row, index }))
      .sort((a, b) => Date.parse(String(b.row[time])) - Date.parse(String(a.row[time])) || b.index - a.index)
      .map(({ row }) => row);
    // A token belongs to the filters it was given with.
    const filter = `${limit}|${name}`;
    const given = query.get('nextToken');
    const [offset = '0', same] = given === null ? [] : Buffer.from(given, 'base64url').toString().split('|#|');
    if (given !== null && same !== filter) throw new Error('filters are not repeated with the token');
    const from = Number(offset);
    const page = rows.slice(from, from + most);
    const more = from + most < rows.length;
    return {
      rows: page.map((row) =>
        Object.fromEntries(summary.filter((key) => row[key] !== undefined).map((key) => [key, row[key]])),
      ),
      ...(more ? { nextToken: Buffer.from(`${from + most}|#|${filter}`).toString('base64url') } : {}),
    };
  }

  function control(request: Received, url: URL, response: ServerResponse): string | Failure | null {
    const call = `${request.method} ${url.pathname}`;
    const known = (allowed: readonly string[]): void => {
      for (const name of url.searchParams.keys()) if (!allowed.includes(name)) throw new Error(`unknown query ${name}`);
    };
    const body = <T>(schema: z.ZodType<T>): T => {
      if (request.headers['content-type'] !== 'application/json') throw new Error('content-type');
      return schema.parse(JSON.parse(request.body.toString('utf8')));
    };
    const none = (): void => {
      if (request.body.length > 0) throw new Error('a body where none belongs');
    };
    const failure = upstream.fail(call);
    if (failure !== null) return failure;
    const found = /^\/(model-customization-jobs|model-invocation-job)\/([^/]+)(\/stop)?$/.exec(url.pathname);
    if (found !== null) {
      known([]);
      none();
      const [, kind, segment = '', stop] = found;
      const name = decodeURIComponent(segment);
      if (/[:/]/.test(segment)) throw new Error(`the segment ${segment} is not encoded`);
      const tuning = kind === 'model-customization-jobs';
      const row = (tuning ? jobs : batches).find(
        (one) => one.jobArn === name || (tuning ? one.jobName === name : String(one.jobArn).endsWith(`/${name}`)),
      );
      if (row === undefined) return missing();
      if (stop === undefined) {
        if (request.method !== 'GET') throw new Error(request.method);
        sendJson(response, 200, row);
        return null;
      }
      if (request.method !== 'POST') throw new Error(request.method);
      if (!['InProgress', 'Submitted', 'Validating', 'Scheduled'].includes(String(row.status))) {
        return fails(400, 'ConflictException', 'The job is in a terminal state.');
      }
      row.status = 'Stopping';
      sendJson(response, 200, {});
      return null;
    }
    switch (call) {
      case 'POST /model-customization-jobs': {
        known([]);
        const given = body(createJob);
        last = given;
        const again = jobs.find((job) => job.token !== undefined && job.token === given.clientRequestToken);
        if (again === undefined && jobs.some((job) => job.jobName === given.jobName)) {
          return fails(400, 'ConflictException', 'A job with this name exists.');
        }
        const job =
          again ??
          addJob({
            jobName: given.jobName,
            outputModelName: given.customModelName,
            roleArn: given.roleArn,
            token: given.clientRequestToken,
            baseModelArn: given.baseModelIdentifier.startsWith('arn:')
              ? given.baseModelIdentifier
              : `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/${given.baseModelIdentifier}`,
            hyperParameters: given.hyperParameters,
            trainingDataConfig: given.trainingDataConfig,
            validationDataConfig: given.validationDataConfig,
            outputDataConfig: given.outputDataConfig,
          });
        sendJson(response, 201, { jobArn: job.jobArn });
        return null;
      }
      case 'GET /model-customization-jobs': {
        known([...LIST, 'creationTimeBefore', 'creationTimeAfter']);
        none();
        const { rows, nextToken } = listed(jobs, url.searchParams, 'creationTime', 'creationTimeBefore', [
          'jobArn',
          'baseModelArn',
          'jobName',
          'status',
          'statusDetails',
          'lastModifiedTime',
          'creationTime',
          'endTime',
          'customModelArn',
          'customModelName',
          'customizationType',
        ]);
        sendJson(response, 200, { modelCustomizationJobSummaries: rows, nextToken });
        return null;
      }
      case 'POST /model-invocation-job': {
        known([]);
        const given = body(createBatch);
        last = given;
        const { tags: wanted, clientRequestToken: _token, modelInvocationType: _type, ...fields } = given;
        const batch = addBatch({
          ...fields,
          status: 'Submitted',
          modelId: `arn:aws:bedrock:${BEDROCK_REGION}::foundation-model/${given.modelId}`,
        });
        tagged.set(String(batch.jobArn), wanted ?? []);
        sendJson(response, 200, { jobArn: batch.jobArn });
        return null;
      }
      case 'GET /model-invocation-jobs': {
        known([...LIST, 'submitTimeBefore', 'submitTimeAfter']);
        none();
        const keys = Object.keys(batches[0] ?? {});
        const { rows, nextToken } = listed(batches, url.searchParams, 'submitTime', 'submitTimeBefore', keys);
        sendJson(response, 200, { invocationJobSummaries: rows, nextToken });
        return null;
      }
      case 'POST /listTagsForResource': {
        known([]);
        const { resourceARN } = body(z.strictObject({ resourceARN: z.string().startsWith(ARN) }));
        sendJson(response, 200, { tags: tagged.get(resourceARN) ?? [] });
        return null;
      }
      default:
        return 'no such operation';
    }
  }

  function sts(request: Received, response: ServerResponse): string | null {
    const form = Object.fromEntries(new URLSearchParams(request.body.toString('utf8')));
    if (!String(request.headers['content-type']).startsWith('application/x-www-form-urlencoded')) return 'content-type';
    const web = form.Action === 'AssumeRoleWithWebIdentity';
    const given = (web ? webIdentity : assumeRole).parse(form);
    roles.push(given);
    const xml = (status: number, body: string): null => {
      response.writeHead(status, { 'content-type': 'text/xml', 'content-length': Buffer.byteLength(body) });
      response.end(body);
      return null;
    };
    if ('ExternalId' in given && given.ExternalId === 'wrong-id') {
      return xml(
        403,
        `<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>The caller &amp; role do not match</Message></Error><RequestId>r</RequestId></ErrorResponse>`,
      );
    }
    const { accessKeyId, secretAccessKey, sessionToken } = ROLE_KEYS;
    const expires = new Date(options.now() + 3_600_000).toISOString();
    const name = web ? 'AssumeRoleWithWebIdentity' : 'AssumeRole';
    return xml(
      200,
      `<${name}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">\n<${name}Result><AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials><AccessKeyId>${accessKeyId}</AccessKeyId><SecretAccessKey>${secretAccessKey}</SecretAccessKey><SessionToken>${sessionToken}</SessionToken><Expiration>${expires}</Expiration></Credentials></${name}Result></${name}Response>`,
    );
  }

  function check(request: Received, response: ServerResponse): string | Failure | null {
    const url = new URL(request.path, 'http://upstream');
    for (const name of Object.keys(request.headers)) if (!HEADERS.has(name)) return `unknown header ${name}`;
    const isSts = url.pathname === '/' && request.method === 'POST';
    const unsigned = isSts && request.body.includes('Action=AssumeRoleWithWebIdentity');
    const { authorization } = request.headers;
    if (unsigned) {
      if (authorization !== undefined) return 'a web identity call is not signed';
    } else if (isSts || authorization !== `Bearer ${BEDROCK_KEY}`) {
      const fault = signatureFault(
        { method: request.method, path: request.path, headers: request.headers, body: request.body },
        {
          service: isSts ? 'sts' : 'bedrock',
          region: BEDROCK_REGION,
          keys: isSts ? [AWS_KEYS] : [AWS_KEYS, ROLE_KEYS],
          now: options.now,
        },
      );
      if (fault !== null) return fault;
    }
    return isSts ? sts(request, response) : control(request, url, response);
  }

  const plain = await startUpstream((request, response) => {
    let outcome: string | Failure | null;
    try {
      outcome = check(request, response);
    } catch (error) {
      outcome = error instanceof z.ZodError ? z.prettifyError(error) : String(error);
    }
    if (outcome === null) return;
    if (typeof outcome === 'string') faults.push(`${request.method} ${request.path}: ${outcome}`);
    const { status, name, message } =
      typeof outcome === 'string' ? fails(400, 'ValidationException', outcome) : outcome;
    const body = JSON.stringify({ message });
    response.writeHead(status, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(body),
      'x-amzn-errortype': `${name}:http://internal.amazon.com/coral/`,
    });
    response.end(body);
  });
  const upstream = Object.defineProperties(plain, {
    faults: { value: faults },
    jobs: { value: jobs },
    batches: { value: batches },
    tags: { value: tagged },
    roles: { value: roles },
    last: { get: () => last },
    addJob: { value: addJob },
    addBatch: { value: addBatch },
    fail: { value: () => null, writable: true },
  }) as BedrockUpstream;
  return upstream;
}
