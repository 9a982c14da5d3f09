/** Kept bodies of a request, as `GET /logs/{id}` shows them, and why there are none. */
import { z } from 'zod';
import type { KeptRequest } from '../../telemetry/bodies/chunk.ts';
import { BODY_FLAGS } from '../../telemetry/bodies/frame.ts';
import { ABSENT, type BodyAbsence } from '../../telemetry/bodies/presented.ts';
import type { LogFoundPage, LogSearchQuery, LogSelection } from '../../telemetry/log-query.ts';
import { Service } from '../services.ts';

export interface BodyReader {
  /** Null when they are not there, or not any more. Rejects with `unavailable` when they cannot be opened. */
  find(location: {
    readonly organisationId: string;
    readonly chunk: string;
    readonly slot: number;
    readonly id: string;
  }): Promise<KeptRequest | null>;
  /** Requests of a selection with a phrase in their bodies. Rejects with `throttled` when there are too many searches. */
  search(selection: LogSelection, query: LogSearchQuery): Promise<LogFoundPage>;
  /** Days that they stay, unless the organisation or workspace says fewer. */
  readonly days: number;
}

export const KEPT_BODIES = new Service<BodyReader>('kept bodies: no store of them is configured');

const headers = z.record(z.string(), z.string()).optional();
const body = z
  .unknown()
  .optional()
  .describe('The JSON of the body. `{events}` for a stream, `{text}` for what is no JSON or is cut.');

export const shownPart = z
  .object({
    url: z.string().optional(),
    method: z.string().optional(),
    status: z.int().optional(),
    headers,
    body,
  })
  .optional();

export const shownBody = { headers, body } as const;

export const shownBodies = z.object({
  kept: z.enum(['all', 'failed_answer', 'none']),
  reason: z
    .enum(ABSENT)
    .nullable()
    .describe(
      'Why there are none. `off`: debug_log is 0, or x-gateway-debug, SLUICE_LOG_BODIES or the sample says so. `guardrail`: one has denied the request. `no_room`: they were dropped. `pending`: another node has them still, ask again in a minute. `expired`: their days are over. `hidden`: you may read the record only.',
    ),
  truncated: z.boolean(),
  redacted: z.boolean().describe('Guardrails have changed the request or its answer.'),
  omitted: z.int().describe('Pictures, sound and files that were left out.'),
});

type ShownBodies = z.input<typeof shownBodies>;

export function noBodies(reason: BodyAbsence): ShownBodies {
  return { kept: 'none', reason, truncated: false, redacted: false, omitted: 0 };
}

export function presentBodies({ end }: KeptRequest): ShownBodies {
  const parts = Object.values(end.parts);
  return {
    kept: (end.flags & BODY_FLAGS.answerOnly) === 0 ? 'all' : 'failed_answer',
    reason: null,
    truncated: parts.some(({ truncated }) => truncated === true),
    redacted: (end.flags & BODY_FLAGS.redacted) !== 0,
    omitted: (end.parts.request?.omitted ?? 0) + (end.parts.answer?.omitted ?? 0),
  };
}
