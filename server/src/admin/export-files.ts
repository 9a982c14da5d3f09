/** Files of exports, for holders of a signed link: `GET /v1/logs/exports/{id}/file`. */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { WHOLE_SIGHT } from '../auth/scopes.ts';
import { systemTenant } from '../auth/tenant.ts';
import type { KnownPaths } from '../http/known-paths.ts';
import type { Clock } from '../kernel/clock.ts';
import { SluiceError } from '../kernel/errors.ts';
import { uuidv7 } from '../kernel/id.ts';
import type { Log } from '../kernel/log.ts';
import { fileKeys } from '../resources/logs/exports/blob-keys.ts';
import { openFileLink } from '../resources/logs/exports/file-link.ts';
import { presentHolder } from '../resources/logs/exports/holder.ts';
import { checkFields } from '../resources/logs/exports/rights.ts';
import type { Blobs, Tables } from '../store/ports.ts';
import type { Row } from '../store/schema.ts';
import type { Macs } from '../store/vault.ts';
import { parseQuery } from './query.ts';
import { adminError, send } from './respond.ts';

export interface ExportFileDeps {
  readonly tables: Pick<Tables, 'read'>;
  readonly blobs: Pick<Blobs, 'get'>;
  readonly vault: Macs;
  readonly clock: Clock;
  readonly log: Log;
  readonly paths: KnownPaths;
}

const EXPORT_FILE_ROUTE = '/v1/logs/exports/:exportId/file';

const TYPES = {
  jsonl: 'application/x-ndjson; charset=utf-8',
  csv: 'text/csv; charset=utf-8',
  parquet: 'application/vnd.apache.parquet',
} as const satisfies Record<Row<'log_exports'>['format'], string>;

/** Registers the route. It takes no credential: the link is one, of one file for 15 minutes. */
export function registerExportFiles(app: FastifyInstance, deps: ExportFileDeps): void {
  deps.paths.know('GET', EXPORT_FILE_ROUTE);
  app.route({
    method: ['GET', 'HEAD'],
    url: EXPORT_FILE_ROUTE,
    exposeHeadRoute: false,
    onRequest: async (request, reply) => {
      try {
        return await sendFile(deps, request, reply);
      } catch (error) {
        return send(reply, adminError(error, uuidv7(deps.clock), deps.log));
      }
    },
    handler: async () => undefined,
  });
}

async function sendFile(deps: ExportFileDeps, request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
  const row = await fileOf(deps, request);
  const { clock, log } = deps;
  const head = request.raw.method === 'HEAD';
  const body = head ? null : Readable.from(bytesOf(deps.blobs, row), { objectMode: false });
  body?.on('error', (error) => log.warn('the file of an export was cut off', { id: row.id, error: String(error) }));
  return reply
    .code(200)
    .headers({
      'content-type': TYPES[row.format],
      'content-length': String(row.parts.reduce((sum, { bytes }) => sum + bytes, 0)),
      'content-disposition': `attachment; filename="logs-${row.id}.${row.format}"`,
      'cache-control': 'no-store',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'x-gateway-request-id': uuidv7(clock),
    })
    .send(body ?? '');
}

/** The export of the link, whose file is still there and which the caller that asked for the link may still have. */
async function fileOf(deps: ExportFileDeps, request: FastifyRequest): Promise<Row<'log_exports'>> {
  const { tables, vault } = deps;
  const now = deps.clock.now();
  const { token } = parseQuery(request.raw.url ?? '');
  const { exportId } = request.params as { readonly exportId: string };
  const link = typeof token === 'string' ? openFileLink(vault, token, now) : null;
  if (link === null || link.exportId !== exportId) {
    throw new SluiceError(
      'forbidden',
      'This link is not valid, or its 15 minutes are over. Ask for a new one: GET /v1/logs/exports/{exportId}/download.',
      { param: 'token' },
    );
  }
  return tables.read(systemTenant(link.organisationId), async (tx) => {
    const { seesBodies } = await presentHolder(tx, link, now);
    const row = await tx.find('log_exports', { id: link.exportId });
    const there = row?.status === 'success' && row.runs === link.run && row.expires_at !== null && row.expires_at > now;
    if (row === undefined || !there) throw new SluiceError('not_found', 'The file of this export is deleted.');
    await checkFields(tx, { sight: WHOLE_SIGHT, seesBodies }, row.workspace_id, row.requested_data);
    return row;
  });
}

async function* bytesOf(blobs: Pick<Blobs, 'get'>, row: Row<'log_exports'>): AsyncGenerator<Buffer> {
  const tenant = systemTenant(row.organisation_id, row.workspace_id);
  for (const key of fileKeys(row)) {
    const stream = await blobs.get(tenant, key);
    if (stream === null) throw new Error(`blob ${key} is gone`);
    for await (const chunk of stream) yield chunk as Buffer;
  }
}
