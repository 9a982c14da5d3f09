/**
 * What an operation decides, in one row. Every property is required: the author of an operation must say how it is routed,
 * limited, guarded, cached and owned.
 */
import type { Dialect } from './dialects/dialect.ts';
import type { Shape } from './shapes/index.ts';

/**
 * `chat` conversations, `text` other text, `binary` pictures, sound and forms, `read` small reads (models, stored
 * responses), `job` files, batches and fine-tuning jobs (run by `training/`), `proxy` anything passed through.
 */
export type Family = 'chat' | 'text' | 'binary' | 'read' | 'job' | 'proxy';

/**
 * What a request is for. `reads` is free; `ends` (stops or removes what may cost money or space) counts under rate limits
 * only, because a caller over budget must be able to end what still costs; `uses` counts under every limit.
 */
export type LimitClass = 'reads' | 'ends' | 'uses';

/**
 * What of an operation has an owner. `body`: what its body may name. `response`, `model`: the object in its path. `ledger`:
 * `training/` asks. `path`: the path that is sent says. `nothing`: it neither reads nor changes an object.
 */
export type Owned = 'body' | 'response' | 'model' | 'ledger' | 'path' | 'nothing';

export interface OperationRow {
  readonly family: Family;
  readonly shape: Shape;
  readonly dialect: Dialect;
  readonly method: 'GET' | 'POST' | 'PUT' | 'DELETE' | 'ANY';
  /** Route under `/v1`, fastify syntax. */
  readonly path: string;
  /**
   * `json`: `model` and `stream` are found in the bytes. `multipart`: `model` is a form field. `none`: no body.
   * `optional`: JSON or nothing. `stream`: never buffered, read by the step that stores or forwards it.
   */
  readonly body: 'json' | 'multipart' | 'none' | 'optional' | 'stream' | 'any';
  /** An answer may be a stream: asked for in the body, or in the query where there is no body. */
  readonly streams: boolean;
  /** Name in conditions, guardrails and logs. */
  readonly requestType: string;
  /** Its name in OpenTelemetry's conventions of generative AI; null: they have none, and its id is used. */
  readonly conventionName: 'chat' | 'text_completion' | 'embeddings' | null;
  /** Summary in the OpenAPI document. */
  readonly title: string;
  /** The body of the example in the OpenAPI document, which the sandbox answers. */
  readonly sample: Readonly<Record<string, unknown>> | null;
  /** Clients of Azure OpenAI also send it to `/v1/deployments/:deployment`, where the deployment is the model. */
  readonly deployed: boolean;
  /** Sluice may answer it from its own catalogue of models. */
  readonly catalogue: boolean;
  /** Scopes of which any one allows it, beside `completions.write`. */
  readonly readScopes: readonly ('models.list' | 'virtual_keys.list')[];
  /** A user who is signed in may ask for it without a key: files, batches, jobs and models, and no call of a model. */
  readonly signIn: boolean;
  /** What limits count it as. `path`: the method and the path of the request decide. */
  readonly limitClass: LimitClass | 'path';
  /** Nothing is charged for the operation itself; batches and jobs are charged when their requests run. */
  readonly free: boolean;
  /** It begins work that lasts beyond the answer, under the usage limits of the account that its body names. */
  readonly beginsWork: boolean;
  /** Guardrails run for it. Lists of models have none: every caller may know what there is to call. */
  readonly guarded: boolean;
  /**
   * What guardrails find in a request. `text`: texts in its body and address. `nothing`: no contents. `kept`: contents that
   * they cannot see, unless Sluice keeps them and judges each line when it runs. `dataset`: rows that become a model's and
   * that they never see.
   */
  readonly sends: 'text' | 'nothing' | 'kept' | 'dataset';
  /**
   * What guardrails find in an answer. `text`: what a model says, in one piece or as a stream. `whole`: the same, but no
   * stream can be judged. `nothing`: numbers, or that an object is gone. `sound`: speech that they cannot read. `state`:
   * states of files and jobs. `files`: contents that may hold what a model said, and that they cannot see.
   */
  readonly gives: 'text' | 'whole' | 'nothing' | 'sound' | 'state' | 'files';
  /** The answer depends on nothing but the request, so that a cache may keep it. */
  readonly cached: boolean;
  readonly owned: Owned;
  /** The kind of object that an answer may make, and whose owner is noted. */
  readonly creates: 'response' | null;
}
