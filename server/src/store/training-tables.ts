/** The tables of files, batches and fine-tuning jobs: a part of `SCHEMA`. */
import { bool, int, json, nullable, table, text, time } from './column.ts';

const audit = { created_at: time(), last_updated_at: time() };

/** Of rows that are work (`jobs/claim.ts`). */
const claimed = {
  cancel_requested: bool(),
  failures: int(),
  /** When the step is due. */
  due_at: time(),
  holder: nullable(text()),
  held_until: time(),
  created_by: nullable(text()),
};

/**
 * What an entry of the ledger is about. `job` fine-tuning jobs, `model` fine-tuned models and their checkpoints, `item`
 * parts of stored responses.
 */
export type OwnedKind = (typeof OWNED_KINDS)[number];

export const OWNED_KINDS = [
  'file',
  'batch',
  'job',
  'model',
  'response',
  'item',
  'conversation',
  'vector_store',
  'container',
] as const;

export const trainingTables = {
  /**
   * Ownership ledger: which workspace made an object at a provider account. Where several workspaces share the account,
   * what has no row here is not found, and nobody is asked.
   */
  object_owners: table(['account', 'kind', 'object_id'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    /** Id of the integration, or of the virtual key without one. */
    account: text(),
    kind: text<OwnedKind>(),
    object_id: text(),
    provider: text(),
    created_by: nullable(text()),
    created_at: time(),
  }),
  /** Files that Sluice keeps itself; their bytes are in the blob store under the id. */
  files: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    filename: text(),
    purpose: text(),
    content_type: text(),
    bytes: int(),
    status: text<'uploaded' | 'processed' | 'error'>(),
    status_details: nullable(text()),
    created_by: nullable(text()),
    created_at: time(),
  }),
  /** Bytes that the files of a workspace have together (`training/managed/file-rows.ts`). */
  file_totals: table(['organisation_id', 'workspace_id'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    bytes: int(),
  }),
  /** Gateway-managed fine-tuning jobs: what was asked, how far it is, and the job as callers see it. */
  training_jobs: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    /** Slug of the stored provider or virtual key that trains. */
    provider_slug: text(),
    /** The create request: body and gateway options. */
    request: json<Record<string, unknown>>(),
    status: text<'validating_files' | 'queued' | 'running' | 'succeeded' | 'failed' | 'cancelled'>(),
    /** The public job (`operations/training.ts`). */
    job: json<Record<string, unknown>>(),
    /** Next thing to do; `done` in a final state. */
    step: text(),
    /** What earlier steps left behind: uploaded objects, open multipart uploads, report. */
    progress: json<Record<string, unknown>>(),
    upstream_id: nullable(text()),
    ...claimed,
    ...audit,
  }),
  training_events: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    job_id: text(),
    /** From 1 within the job. */
    seq: int(),
    level: text<'info' | 'warn' | 'error'>(),
    message: text(),
    data: nullable(json<Record<string, unknown>>()),
    created_at: time(),
  }),
  /** Gateway-managed batches, run by the provider or line by line by Sluice. */
  batches: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    provider_slug: text(),
    request: json<Record<string, unknown>>(),
    status: text(),
    batch: json<Record<string, unknown>>(),
    step: text(),
    progress: json<Record<string, unknown>>(),
    upstream_id: nullable(text()),
    ...claimed,
    ...audit,
  }),
  /** Lines of a batch that have their result; kept until the output file is written. */
  batch_results: table(['batch_id', 'line'], 'organisation', {
    organisation_id: text(),
    workspace_id: text(),
    batch_id: text(),
    /** From 1. */
    line: int(),
    ok: bool(),
    /** JSON text of the output line. */
    result: text(),
    created_at: time(),
  }),
  /**
   * Batches and fine-tuning jobs that a provider runs, until what they used is booked and recorded. The row is what makes
   * that happen once.
   */
  object_usage: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    kind: text<'batch' | 'job'>(),
    provider_slug: text(),
    /** Of the account at the provider, as in `object_owners`. */
    account: text(),
    /** Id of the object at the provider, or of Sluice's own; empty while its creation is under way. */
    object_id: text(),
    /** Limits it counts in (`limits/ledger/job-usage.ts`). */
    terms: json<unknown[]>(),
    /** Model, endpoint, metadata, caller: what its record says. */
    about: json<Record<string, unknown>>(),
    /** What it used, once that is booked. */
    result: nullable(json<Record<string, unknown>>()),
    step: text(),
    ...claimed,
    ...audit,
  }),
  /** What the sandbox's own files, jobs and batches remember; the rest follows from the clock. */
  sandbox_objects: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    workspace_id: text(),
    kind: text<'file' | 'batch' | 'job'>(),
    data: json<Record<string, unknown>>(),
    created_at: time(),
  }),
} as const;
