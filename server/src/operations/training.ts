/**
 * Files, batches and fine-tuning jobs as callers see them, whoever runs them. Times are Unix seconds here,
 * milliseconds everywhere else in the product.
 */
import type { JsonObject, JsonValue } from '../kernel/json.ts';

export type JobStatus = 'validating_files' | 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled';

/** States a job never leaves. */
export const FINAL_JOB: ReadonlySet<JobStatus> = new Set(['succeeded', 'failed', 'cancelled']);

export interface JobError {
  readonly code: string;
  readonly message: string;
  /** `training_file`, `validation_file` or null. */
  readonly param: string | null;
}

/** A fine-tuning job. Fields a provider adds beside these are passed on. */
export interface FineTuningJob {
  readonly id: string;
  readonly object: 'fine_tuning.job';
  readonly created_at: number;
  /** Non-null exactly when `status` is `failed`. */
  readonly error: JobError | null;
  /** Null until `succeeded`. */
  readonly fine_tuned_model: string | null;
  /** Null until a final state. */
  readonly finished_at: number | null;
  readonly hyperparameters: { readonly n_epochs: number | 'auto'; readonly [name: string]: JsonValue };
  readonly model: string;
  readonly organization_id: string;
  /** Empty until `succeeded`. */
  readonly result_files: readonly string[];
  readonly status: JobStatus;
  /** Null until a final state. */
  readonly trained_tokens: number | null;
  readonly training_file: string;
  readonly validation_file: string | null;
  readonly integrations?: readonly JobIntegration[] | null;
  readonly seed: number;
  /** Null when the job is not running. */
  readonly estimated_finish?: number | null;
  readonly [name: string]: unknown;
}

/** Providers know the tracker by another name. */
export interface JobIntegration {
  readonly type: 'tracker';
  readonly tracker: {
    readonly project: string;
    readonly name?: string | null;
    readonly entity?: string | null;
    readonly tags?: readonly string[];
  };
}

export interface JobEvent {
  readonly object: 'fine_tuning.job.event';
  readonly id: string;
  readonly created_at: number;
  readonly level: 'info' | 'warn' | 'error';
  readonly message: string;
  readonly [name: string]: unknown;
}

/** What `method` of a fine-tuning job may say. */
export interface JobCheckpoint {
  readonly object: 'fine_tuning.job.checkpoint';
  readonly id: string;
  readonly created_at: number;
  readonly fine_tuned_model_checkpoint: string;
  readonly step_number: number;
  readonly metrics: Readonly<Record<string, number>>;
  readonly fine_tuning_job_id: string;
  readonly [name: string]: unknown;
}

export type Hyperparameters = Readonly<{
  n_epochs: number | 'auto';
  learning_rate_multiplier: number | 'auto';
  batch_size: number | 'auto';
  /** DPO only, beyond the shapes. */
  beta?: number | 'auto';
}>;

/**
 * A create request after its own rules were checked: shapes A, B and C merged into one. An absent field is
 * undefined or null, never a default: each provider decides by the table in its own file.
 */
export interface JobRequest {
  readonly shape: 'A' | 'B' | 'C';
  /** As the caller named it; it stays in the answer. */
  readonly model: string;
  /** What the provider gets: `provider_options.model`, else `model`. */
  readonly upstreamModel: string;
  /** The provider's own id or object URI, once a gateway-managed file has been uploaded. */
  readonly training_file: string;
  readonly validation_file: string | null;
  readonly suffix: string;
  readonly method: 'supervised' | 'dpo';
  readonly hyperparameters: Hyperparameters;
  /** Path of `hyperparameters` in the caller's body, for errors: `method.supervised.hyperparameters`. */
  readonly hyperparametersPath: string;
  readonly job_name: string | null;
  readonly role_arn: string | null;
  readonly output_file: string | null;
  readonly seed: number | null;
  readonly integrations: readonly JobIntegration[] | null;
  readonly metadata: Readonly<Record<string, string>> | null;
  /**
   * Members no shape names, unchanged: passed through or refused by name. Those at the top by their name; deeper ones,
   * which only `body` has in their place, by dotted path (`method.dpo.hyperparameters.x`).
   */
  readonly extra: JsonObject;
  /** The caller's body as it was parsed (big numbers kept), for providers that take it nearly unchanged. */
  readonly body: JsonObject;
}

/** What an upload may be for. */
export const UPLOAD_PURPOSES: ReadonlySet<string> = new Set(['assistants', 'batch', 'fine-tune', 'vision']);

/** Fields of a file that is uploaded. */
export interface FileObject {
  readonly id: string;
  readonly object: 'file';
  readonly bytes: number;
  readonly created_at: number;
  readonly filename: string;
  readonly purpose: string;
  readonly status: 'uploaded' | 'processed' | 'error';
  readonly status_details?: string | null;
  readonly [name: string]: unknown;
}

export type BatchStatus =
  | 'validating'
  | 'in_progress'
  | 'finalizing'
  | 'processing_post_request_guardrails'
  | 'completed'
  | 'failed'
  | 'expired'
  | 'cancelling'
  | 'cancelled'
  | 'file_upload_failed'
  | 'batch_start_failed';

export const FINAL_BATCH: ReadonlySet<BatchStatus> = new Set([
  'completed',
  'failed',
  'expired',
  'cancelled',
  'file_upload_failed',
  'batch_start_failed',
]);

/** Fields of a batch that is created. */
export interface Batch {
  readonly id: string;
  readonly object: 'batch';
  readonly endpoint: string;
  readonly input_file_id: string;
  readonly completion_window: string;
  readonly status: BatchStatus;
  readonly created_at: number;
  readonly output_file_id?: string | null;
  readonly error_file_id?: string | null;
  readonly errors?: {
    readonly object: 'list';
    readonly data: readonly {
      readonly code: string | null;
      readonly message: string;
      readonly param?: string | null;
      readonly line?: number | null;
    }[];
  } | null;
  readonly request_counts?: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly metadata?: Readonly<Record<string, string>> | null;
  readonly [name: string]: unknown;
}

/** A batch create request after its own rules were checked, `provider_options` merged in. */
export interface BatchRequest {
  readonly input_file_id: string;
  readonly endpoint: string;
  readonly completion_window: 'immediate' | '24h';
  readonly metadata: Readonly<Record<string, string>> | null;
  readonly model: string | null;
  readonly job_name: string | null;
  readonly role_arn: string | null;
  readonly output_data_config: string | null;
  readonly extra: JsonObject;
  readonly body: JsonObject;
}

/** One page of a list that walks by the id of the last item seen. */
export interface PageRequest {
  readonly after: string | null;
  readonly limit: number;
}

export interface Page<T> {
  /** Newest first. */
  readonly data: readonly T[];
  readonly has_more: boolean;
}

/** Row formats of training data. */
export type RowFormat =
  | 'openai'
  | 'together'
  | 'fireworks'
  | 'mistral'
  | 'vertex-supervised'
  | 'vertex-preference'
  | 'bedrock-conversation'
  | 'bedrock-claude-3'
  | 'bedrock-text';
