import { readBody } from '../../http/read-body.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { decodeString, JsonScanError, type ScanResult, scanJson } from '../../kernel/json-scan.ts';
import { scanMultipart } from '../../kernel/multipart-scan.ts';
import { BASE64 } from '../estimate.ts';
import type { HeadUses } from '../exchange.ts';
import { isLargeScan, scanOnThread } from '../large/calls.ts';
import { EXTRA } from '../request-body.ts';
import { RequestBody } from '../state/body.ts';
import type { LlmRequest, RequestHead } from '../state/request.ts';

/** Top-level members the gateway looks at; everything else passes unread. */
export const WANTED = [
  'model',
  'stream',
  'stream_options',
  'max_tokens',
  'max_completion_tokens',
  'max_output_tokens',
  'user',
  'background',
] as const;

/** Texts that later steps look for in the whole body. */
const SOUGHT = [EXTRA, BASE64];

/** The longest names in use are ARNs. Names are remembered and recorded, so they must have a bound. */
const MAX_MODEL = 2048;

/**
 * Largest body that creates a batch or a job, or ends one: settings, of a few KB. It is parsed and written again in the event loop,
 * which 31 MB would hold for 200 ms.
 */
const MAX_JOB_BYTES = 128 * 1024;

/** Reads the bounded body and finds `model` and `stream` in its bytes. */
export function readRequestBody(
  x: HeadUses<
    'attempt' | 'bodyHeld' | 'cancel' | 'clientGone' | 'outcome' | 'request',
    'bodies' | 'clock' | 'large' | 'maxBodyBytes'
  >,
): void | Promise<void> {
  const {
    request: { operation, incoming: request },
    services,
  } = x;
  x.request.dryRun = isDryRun(x.request.header('x-gateway-dry-run'));
  if (operation.body === 'none' || operation.body === 'stream') return;
  const type = contentType(x.request.header('content-type'));
  if (operation.body === 'json' && type !== 'application/json') {
    throw new SluiceError(
      'malformed_call',
      `Send content-type: application/json; got ${JSON.stringify(x.request.header('content-type')?.slice(0, 100) ?? '')}.`,
    );
  }
  if (operation.body === 'multipart' && type !== 'multipart/form-data' && !type.startsWith('audio/')) {
    throw new SluiceError('malformed_call', 'Send content-type: multipart/form-data with a boundary.');
  }
  const began = services.clock.monotonic();
  const parsed = (): void => {
    x.outcome.times.parse = services.clock.monotonic() - began;
  };
  // The console's own page has read its body already.
  if (x.request.body.bytes.length > 0) return afterwards(scanBody(x), parsed);
  return readBody(request, {
    limit: operation.family === 'job' ? Math.min(MAX_JOB_BYTES, services.maxBodyBytes) : services.maxBodyBytes,
    clock: services.clock,
    budget: services.bodies,
    holder: x.request.organisationId,
  }).then((body) => {
    x.request.body = new RequestBody(body, null);
    x.bodyHeld = body.length;
    x.outcome.bytesIn = body.length;
    return afterwards(scan(x, type), parsed);
  });
}

function afterwards(pending: void | Promise<void>, run: () => void): void | Promise<void> {
  return pending === undefined ? run() : pending.then(run);
}

/** Finds what the gateway looks at in a body that was read whole. */
function scan(x: HeadUses<'attempt' | 'cancel' | 'clientGone', 'large'>, type: string): void | Promise<void> {
  const {
    request: { operation },
  } = x;
  x.attempt.body = x.request.body;
  const { bytes: body } = x.request.body;
  if (operation.body === 'json' || (type === 'application/json' && body.length > 0)) return scanBody(x);
  if (operation.body === 'optional') {
    if (body.length > 0) throw new SluiceError('malformed_call', 'Send no body, or content-type: application/json.');
  } else if (type === 'multipart/form-data') scanForm(x);
  else if (operation.family === 'proxy' && type === '' && body.length > 0) {
    throw new SluiceError(
      'malformed_call',
      'Send a content-type header with the body, such as content-type: application/json.',
    );
  }
}

/** Anything but the two words is refused: a caller that sends `1` or `yes` must not get a request that runs and costs. */
function isDryRun(value: string | undefined): boolean {
  if (value === undefined) return false;
  const word = value.toLowerCase();
  if (word === 'true' || word === 'false') return word === 'true';
  throw new SluiceError('invalid_request', 'x-gateway-dry-run must be true or false.', { param: 'x-gateway-dry-run' });
}

/** Media type without parameters, lower case. */
export function contentType(value: string | undefined): string {
  if (value === undefined) return '';
  const semicolon = value.indexOf(';');
  return (semicolon === -1 ? value : value.slice(0, semicolon)).trim().toLowerCase();
}

function scanBody(x: HeadUses<'attempt' | 'cancel' | 'clientGone', 'large'>): void | Promise<void> {
  const { bytes } = x.request.body;
  if (isLargeScan(bytes))
    return scanOnThread(x, bytes, WANTED, SOUGHT).then(
      (found) => takeScan(x, found),
      (error: unknown) => refuseScan(x.request, error),
    );
  let found: ScanResult;
  try {
    found = scanJson(bytes, WANTED);
  } catch (error) {
    return refuseScan(x.request, error);
  }
  takeScan(x, found);
}

function refuseScan(request: LlmRequest, error: unknown): void {
  if (!(error instanceof JsonScanError)) throw error;
  // A passed-through body need not be an object; it only has to be left alone.
  if (request.operation.family === 'proxy' && error.reason === 'not_object') return;
  throw new SluiceError('malformed_call', `${error.message}. Send one JSON object.`);
}

function takeScan(x: HeadUses<'attempt'>, found: ScanResult): void {
  const { bytes } = x.request.body;
  x.request.body = new RequestBody(bytes, found);
  x.attempt.body = x.request.body;
  const model = found.get('model');
  if (model?.kind === 'string') x.request.model = decodeString(bytes, model);
  else if (
    model !== undefined &&
    model.kind !== 'null' &&
    x.request.operation.family !== 'proxy' &&
    x.request.operation.family !== 'job'
  ) {
    throw new SluiceError('invalid_request', 'model must be a text, such as "@slug/gpt-4o".', { param: 'model' });
  }
  checkModel(x.request);
  const stream = found.get('stream');
  if (stream?.kind === 'true') asksForStream(x);
  else if (stream !== undefined && stream.kind !== 'false' && stream.kind !== 'null' && x.request.operation.streams) {
    throw new SluiceError('invalid_request', 'stream must be true or false.', { param: 'stream' });
  }
}

function asksForStream(x: HeadUses<'attempt'>): void {
  x.request.stream = true;
  x.attempt.stream = true;
}

function scanForm(x: HeadUses<'attempt'>): void {
  const fields = scanMultipart(x.request.body.bytes, x.request.header('content-type') ?? '', ['model', 'stream']);
  x.request.model = fields.get('model')?.value ?? '';
  checkModel(x.request);
  if (fields.get('stream')?.value === 'true') asksForStream(x);
}

function checkModel(request: RequestHead): void {
  if (request.model.length <= MAX_MODEL) return;
  request.model = '';
  throw new SluiceError('invalid_request', `model must have at most ${MAX_MODEL} characters.`, { param: 'model' });
}
