/** The data sets of a job: files of its workspace, checked and converted as its provider wants them. */
import type { Readable } from 'node:stream';
import { SluiceError } from '../../kernel/errors.ts';
import type { JobError, JobRequest } from '../../operations/training.ts';
import type { JobsAdapter } from '../../providers/training.ts';
import type { TenantContext } from '../../store/ports.ts';
import type { Row } from '../../store/schema.ts';
import { convertDataset, type DatasetReport, isValid, problemsText, validateDataset } from '../datasets/index.ts';
import { invalid } from '../fields.ts';
import { notFound } from '../object-ownership.ts';
import { digest, FIELD, type NewEvent, type Role } from './job-row.ts';
import type { JobServices } from './job-services.ts';

/** Ids that Sluice gives to files it keeps itself. */
const PREFIX = 'gw_file_';

/** The named file of the workspace, if it can be trained on. 404 for one of another workspace. */
export async function datasetFile(
  services: Pick<JobServices, 'tables'>,
  tenant: TenantContext,
  id: string,
  role: Role,
): Promise<Row<'files'>> {
  const param = FIELD[role];
  if (!id.startsWith(PREFIX)) {
    throw invalid(
      param,
      `${param} must be a file that Sluice keeps (${PREFIX}…): upload it with x-gateway-provider: gateway.`,
    );
  }
  const file = await services.tables.read(tenant, (tx) => tx.find('files', { id }));
  if (file === undefined || file.workspace_id !== tenant.workspaceId) throw notFound('file', param);
  if (file.purpose !== 'fine-tune') {
    throw invalid(param, `${param} has the purpose ${file.purpose}; upload it with the purpose fine-tune.`);
  }
  return file;
}

/** A data set that cannot be used, as the job's error and events say it. */
export class DatasetRefused extends Error {
  readonly error: JobError;
  readonly report: DatasetReport | null;

  constructor(role: Role, message: string, report: DatasetReport | null) {
    super(message);
    this.name = 'DatasetRefused';
    this.error = { code: `invalid_${FIELD[role]}`, message, param: FIELD[role] };
    this.report = report;
  }

  /** Each problem of the report as an event, at most 100; none repeats content of a row. */
  events(jobId: string, now: number): NewEvent[] {
    const { param } = this.error;
    return (this.report?.problems ?? []).map(({ line, code, reason }, index) => ({
      id: `ftevent-${digest(jobId, 'problem', param ?? '', String(index))}`,
      level: 'error',
      message: line === null ? `${param}: ${reason}` : `${param} line ${line}: ${reason}`,
      data: { type: 'dataset_problem', param, line, code },
      created_at: now,
    }));
  }
}

async function open(
  services: Pick<JobServices, 'blobs'>,
  tenant: TenantContext,
  id: string,
  role: Role,
): Promise<Readable> {
  const body = await services.blobs.get(tenant, id);
  if (body === null) throw new DatasetRefused(role, `The file ${id} was deleted.`, null);
  return body;
}

function rules(role: Role, job: JobRequest, jobs: JobsAdapter) {
  return {
    kinds: job.method === 'dpo' ? (['preference'] as const) : (['chat', 'text'] as const),
    format: jobs.rowFormat(job),
    // A provider's fewest rows are those of the training file.
    minimumRows: role === 'training' ? jobs.minimumRows : 1,
  };
}

/** Reads a data set to its end: rows, tokens, and everything that is wrong with it for this provider. */
export async function inspect(
  services: Pick<JobServices, 'blobs' | 'clock' | 'log'>,
  given: { readonly tenant: TenantContext; readonly id: string; readonly role: Role; readonly signal: AbortSignal },
  job: JobRequest,
  jobs: JobsAdapter,
): Promise<DatasetReport> {
  const { tenant, id, role, signal } = given;
  const { clock, log } = services;
  const input = await open(services, tenant, id, role);
  return validateDataset(input, {
    ...rules(role, job, jobs),
    countTokens: true,
    clock,
    log,
    signal,
    name: id,
    owner: tenant.organisationId,
  });
}

/** As `inspect`; throws `DatasetRefused` for a data set that cannot be used. */
export async function checked(...given: Parameters<typeof inspect>): Promise<{ rows: number; tokens: number }> {
  const report = await inspect(...given);
  const [, { role }] = given;
  if (isValid(report)) return { rows: report.rows, tokens: report.tokens ?? 0 };
  throw new DatasetRefused(role, `${FIELD[role]} cannot be used: ${problemsText(report)}.`, report);
}

/** The data set in the provider's format; the stream fails with `DatasetRefused` or 400 when a row cannot be converted. */
export async function converted(...given: Parameters<typeof inspect>): Promise<Readable> {
  const [services, { tenant, id, role, signal }, job, jobs] = given;
  const { clock, log } = services;
  const input = await open(services, tenant, id, role);
  const { stream, report } = convertDataset(input, {
    ...rules(role, job, jobs),
    param: FIELD[role],
    clock,
    log,
    signal,
    name: id,
    owner: tenant.organisationId,
  });
  // The stream fails with the same reason.
  report.catch(() => undefined);
  return stream;
}

/** Whether a conversion failed for what the rows hold. */
export function refusedRows(error: unknown): error is SluiceError {
  return error instanceof SluiceError && error.reason === 'invalid_dataset_row';
}
