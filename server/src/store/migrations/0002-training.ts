import { ddl } from './ddl.ts';
import type { Migration, Types } from './migration.ts';

/** Files, batches and fine-tuning jobs. */
export const training: Migration = { name: '0002-training', statements };

function statements(types: Types): string[] {
  const { text } = types;
  const { T, I, B, audit, inOrganisation, part, table, one, refers, index, unique } = ddl(types);
  const inWorkspace = refers('workspace_id', 'workspaces');
  const work = {
    step: T,
    progress: T,
    upstream_id: text,
    cancel_requested: B,
    failures: I,
    due_at: I,
    holder: text,
    held_until: I,
    created_by: text,
    ...audit,
  };
  return [
    table(
      'object_owners',
      {
        organisation_id: T,
        workspace_id: T,
        account: T,
        kind: one('file', 'batch', 'job'),
        object_id: T,
        provider: T,
        created_by: text,
        created_at: I,
      },
      'PRIMARY KEY (account, kind, object_id)',
      inWorkspace,
    ),
    index('object_owners_list', 'object_owners (organisation_id, workspace_id, account, kind, created_at)'),
    table(
      'files',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        filename: T,
        purpose: T,
        content_type: T,
        bytes: I,
        status: one('uploaded', 'processed', 'error'),
        status_details: text,
        created_by: text,
        created_at: I,
      },
      inOrganisation,
      inWorkspace,
    ),
    index('files_list', 'files (organisation_id, workspace_id, created_at)'),
    table(
      'training_jobs',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        provider_slug: T,
        request: T,
        status: one('validating_files', 'queued', 'running', 'succeeded', 'failed', 'cancelled'),
        job: T,
        ...work,
      },
      inOrganisation,
      inWorkspace,
    ),
    index('training_jobs_list', 'training_jobs (organisation_id, workspace_id, created_at)'),
    // Whole, not partial: a condition on `step` given as a parameter would not match it. Finished rows are due never.
    index('training_jobs_due', 'training_jobs (due_at)'),
    table(
      'training_events',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        job_id: T,
        seq: I,
        level: one('info', 'warn', 'error'),
        message: T,
        data: text,
        created_at: I,
      },
      refers('job_id', 'training_jobs', part),
    ),
    unique('training_events_job', 'training_events (organisation_id, job_id, seq)'),
    table(
      'batches',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        provider_slug: T,
        request: T,
        status: T,
        batch: T,
        ...work,
      },
      inOrganisation,
      inWorkspace,
    ),
    index('batches_list', 'batches (organisation_id, workspace_id, created_at)'),
    index('batches_due', 'batches (due_at)'),
    table(
      'batch_results',
      { organisation_id: T, workspace_id: T, batch_id: T, line: I, ok: B, result: T, created_at: I },
      'PRIMARY KEY (batch_id, line)',
      refers('batch_id', 'batches', part),
    ),
    index('batch_results_batch', 'batch_results (organisation_id, batch_id, line)'),
    table(
      'sandbox_objects',
      {
        id: `${T} PRIMARY KEY`,
        organisation_id: T,
        workspace_id: T,
        kind: one('file', 'batch', 'job'),
        data: T,
        created_at: I,
      },
      inWorkspace,
    ),
    index('sandbox_objects_list', 'sandbox_objects (organisation_id, workspace_id, kind, created_at)'),
  ];
}
