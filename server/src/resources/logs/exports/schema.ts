/** Bodies and answers of exports. */
import { z } from 'zod';
import type { Row } from '../../../store/schema.ts';
import { EXPORT_FIELD_IDS, EXPORT_FORMATS } from '../../../telemetry/log-export.ts';
import { rangeOf, rangeWithout } from '../../analytics/numbers.ts';
import { description, toIso, toIsoOrNull } from '../../body-fields.ts';
import { tenantFields } from '../../fields.ts';
import { exportFilters } from './filters.ts';

const requestedData = z
  .array(z.enum(EXPORT_FIELD_IDS))
  .min(1, 'must name at least one field')
  .max(EXPORT_FIELD_IDS.length)
  .superRefine((fields, context) => {
    for (const [at, field] of fields.entries()) {
      if (fields.indexOf(field) !== at) context.addIssue({ code: 'custom', path: [at], message: `repeats ${field}` });
    }
  })
  .describe(
    'Fields of the file, in this order. `request` and `response` are the kept bodies and need `logs.view`. Behind them is then `bodies_reason`: why a body is null.',
  );

const form = {
  format: z.enum(EXPORT_FORMATS).optional().describe('`jsonl` when absent: one JSON object a line.'),
  all: z
    .boolean()
    .optional()
    .describe('`true`: every request, in place of a page. More than SLUICE_EXPORT_MAX_ROWS are refused.'),
  bom: z.boolean().optional().describe('`true`: a CSV file begins with the mark by which spreadsheets know UTF-8.'),
} as const;

interface Asked {
  readonly filters: { readonly page_size?: number | undefined; readonly current_page?: number | undefined };
  readonly format?: string | undefined;
  readonly all?: boolean | undefined;
  readonly bom?: boolean | undefined;
}

function checkForm({ filters, all }: Asked, context: z.core.$RefinementCtx): void {
  for (const name of ['page_size', 'current_page'] as const) {
    if (all !== true || filters[name] === undefined) continue;
    context.addIssue({ code: 'custom', path: ['filters', name], message: 'cannot be combined with all: true' });
  }
}

export const createBody = z
  .strictObject({
    ...tenantFields,
    filters: exportFilters,
    requested_data: requestedData,
    description: description.optional().describe('A sentence of Sluice when absent.'),
    ...form,
  })
  .superRefine(checkForm);

export const updateBody = z
  .strictObject({
    ...tenantFields,
    filters: exportFilters,
    requested_data: requestedData.optional(),
    description: description.optional(),
    ...form,
  })
  .superRefine(checkForm);

export const made = z.object({
  id: z.string(),
  total: z.int().describe('Requests that the file would have now.'),
  object: z.literal('export'),
});

export const said = z.object({ message: z.string(), object: z.literal('export') });

export const exportItem = z.object({
  id: z.string(),
  organisation_id: z.string(),
  workspace_id: z.string(),
  filters: z.record(z.string(), z.unknown()),
  requested_data: z.array(z.string()),
  status: z.enum(['draft', 'in_progress', 'success', 'failed', 'stopped']),
  description: z.string(),
  created_at: z.string(),
  last_updated_at: z.string(),
  created_by: z.string().describe('The user, or the service key.'),
  object: z.literal('export'),
  format: z.enum(EXPORT_FORMATS),
  all: z.boolean(),
  bom: z.boolean(),
  total_records: z.int().describe('Requests that the filters chose; once it is a success, those in the file.'),
  records: z.int().describe('Requests that are written.'),
  bytes: z.int().describe('Bytes that are written.'),
  error: z
    .object({ code: z.string(), message: z.string(), param: z.string().nullable() })
    .nullable()
    .describe('Why it failed; `code` is `forbidden`, `validation` or `unavailable`.'),
  expires_at: z.string().nullable().describe('When the file is deleted; null without a file.'),
  incomplete: z
    .array(rangeWithout)
    .optional()
    .describe('Ranges of which stored requests could not be read; absent as a rule.'),
});

export function present(row: Row<'log_exports'>): z.input<typeof exportItem> {
  const sum = (of: 'rows' | 'bytes') => row.parts.reduce((total, part) => total + part[of], 0);
  const ranges = row.incomplete.map(rangeOf);
  return {
    id: row.id,
    organisation_id: row.organisation_id,
    workspace_id: row.workspace_id,
    filters: row.filters,
    requested_data: row.requested_data,
    status: row.status,
    description: row.description,
    created_at: toIso(row.created_at),
    last_updated_at: toIso(row.last_updated_at),
    created_by: row.created_by ?? row.organisation_id,
    object: 'export',
    format: row.format,
    all: row.whole,
    bom: row.bom,
    total_records: row.total,
    records: sum('rows'),
    bytes: sum('bytes'),
    error: row.error,
    expires_at: toIsoOrNull(row.expires_at),
    ...(ranges.length === 0 ? {} : { incomplete: ranges }),
  };
}
