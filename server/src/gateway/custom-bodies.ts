/** Keeps bodies of requests that went another way, by the rules of those that went through here. No guardrail judges them. */
import type { Clock } from '../kernel/clock.ts';
import { inTurns, type Steps } from '../kernel/turns.ts';
import type { WorkspaceSnapshot } from '../runtime/snapshot.ts';
import { BODY_FLAGS, type BodyEnd, type BodyPart } from '../telemetry/bodies/frame.ts';
import { MASK, maskedHeaders } from '../telemetry/bodies/masked-headers.ts';
import type { CustomLog, CustomLogCaller, ToldPart } from '../telemetry/custom-log.ts';
import type { RecordDraft } from '../telemetry/recorder.ts';
import type { BodyLog } from './body-log.ts';
import { FAILED_ANSWER_BYTES, keptBodies } from './kept-bodies.ts';
import { PartWriter } from './part-writer.ts';

type BodyColumns = Pick<RecordDraft, 'body_chunk' | 'body_slot' | 'body_flags'>;

export interface ToldBodies {
  readonly caller: CustomLogCaller;
  readonly snapshot: Pick<WorkspaceSnapshot, 'bodies'>;
  /** Names of the header that switches off, in lower case. */
  readonly debug: readonly string[];
  readonly entries: readonly { readonly entry: CustomLog; readonly draft: RecordDraft | null }[];
}

/** Shorter values are no credentials, and would mask words. */
const LEAST_SECRET = 8;
const STEP_BYTES = 32 * 1024;

/** What the record of each entry says of its bodies. */
export async function keepToldBodies(log: BodyLog, clock: Clock, told: ToldBodies): Promise<readonly BodyColumns[]> {
  return inTurns(keeping(log, told), clock);
}

function* keeping(log: BodyLog, { caller, snapshot, debug, entries }: ToldBodies): Steps<BodyColumns[]> {
  const out: BodyColumns[] = [];
  for (const { entry, draft } of entries) {
    const off = Object.entries(entry.request.headers).find(([name]) => debug.includes(name.toLowerCase()))?.[1];
    const asked = {
      header: (name: string) => (name === 'x-gateway-debug' ? off : undefined),
      traceId: draft?.trace_id ?? '',
      principal: caller,
      snapshot,
    };
    const what = draft === null ? 'none' : keptBodies(asked, log.rule);
    const parts: readonly BodyPart[] =
      what === 'all' ? ['request', 'answer'] : what === 'none' || entry.status < 400 ? [] : ['answer'];
    out.push(draft === null || parts.length === 0 ? {} : yield* writing(log, caller, entry, draft, parts));
    yield;
  }
  return out;
}

function* writing(
  log: BodyLog,
  { organisationId, workspaceId }: CustomLogCaller,
  { method, url, status, request, answer }: CustomLog,
  { id, time }: RecordDraft,
  parts: readonly BodyPart[],
): Steps<BodyColumns> {
  const names = new Set(log.maskedHeaders);
  const masked = (part: ToldPart) => maskedHeaders(Object.entries(part.headers), { names, secrets: [] });
  const headers = { request: masked(request), answer: masked(answer) };
  const secrets = secretsOf(request, headers.request);
  const whole = parts.length === 2;
  let flags = whole ? 0 : BODY_FLAGS.answerOnly;
  const facts: { -readonly [K in BodyPart]?: BodyEnd['parts'][K] } = {};
  let bytes = 0;
  for (const part of parts) {
    const text = Buffer.from((part === 'request' ? request : answer).body);
    const limit = whole ? log.maxBytes : FAILED_ANSWER_BYTES;
    const writer = new PartWriter(log, { requestId: id, part, attempt: 1, limit, secrets, binary: null });
    for (let at = 0; at < text.length; at += STEP_BYTES) {
      writer.write(text.subarray(at, at + STEP_BYTES));
      if (at > 0) yield;
    }
    writer.end();
    if (writer.lost) return { body_flags: flags | BODY_FLAGS.lost };
    if (writer.facts.truncated) flags |= BODY_FLAGS.truncated;
    if (writer.facts.omitted !== undefined) flags |= BODY_FLAGS.omitted;
    facts[part] =
      part === 'request'
        ? { method, url, headers: headers.request, ...writer.facts }
        : { status, ...(whole ? { headers: headers.answer } : {}), ...writer.facts };
    bytes += Math.min(limit, writer.bytes);
  }
  const place = log.place(workspaceId, bytes);
  const whose = { organisation_id: organisationId, workspace_id: workspaceId };
  if (!log.end(id, { ...whose, ...place, time, flags, parts: facts })) return { body_flags: flags | BODY_FLAGS.lost };
  return { body_chunk: place.chunk, body_slot: place.slot, body_flags: flags };
}

/** Credentials of the request, with and without the word before them: answers may repeat them. */
function secretsOf({ headers }: ToldPart, masked: Readonly<Record<string, string>>): Buffer[] {
  const values = Object.entries(headers).flatMap(([name, value]) =>
    masked[name.toLowerCase()] === MASK ? [value, value.slice(value.lastIndexOf(' ') + 1)] : [],
  );
  return [...new Set(values)].filter(({ length }) => length >= LEAST_SECRET).map((value) => Buffer.from(value));
}
