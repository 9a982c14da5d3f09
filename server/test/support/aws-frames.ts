/** Messages of AWS event streams, written by the AWS SDK's own codec and not by ours. */
import { EventStreamCodec } from '@smithy/core/event-streams';

const codec = new EventStreamCodec(
  (input) => (typeof input === 'string' ? input : Buffer.from(input).toString('utf8')),
  (text) => new Uint8Array(Buffer.from(text, 'utf8')),
);

type Headers = Parameters<EventStreamCodec['encode']>[0]['headers'];

/** One message with whatever headers. */
export function awsMessage(headers: Headers, payload: string | Uint8Array): Buffer {
  const body = typeof payload === 'string' ? Buffer.from(payload) : payload;
  return Buffer.from(codec.encode({ headers, body: new Uint8Array(body) }));
}

const texts = (headers: Record<string, string>): Headers =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, { type: 'string' as const, value }]));

/** An event as Bedrock sends it: `{p: …}` pads payloads there, so that their length tells nothing. */
export function awsEvent(type: string, payload: object): Buffer {
  const headers = { ':event-type': type, ':content-type': 'application/json', ':message-type': 'event' };
  return awsMessage(texts(headers), JSON.stringify({ ...payload, p: 'abcdefgh' }));
}

/** The model's own event, as InvokeModelWithResponseStream wraps it. */
export function awsChunk(event: object): Buffer {
  return awsEvent('chunk', { bytes: Buffer.from(JSON.stringify(event)).toString('base64') });
}

export function awsException(type: string, payload: object): Buffer {
  const headers = { ':exception-type': type, ':content-type': 'application/json', ':message-type': 'exception' };
  return awsMessage(texts(headers), JSON.stringify(payload));
}

export function awsFault(code: string, message: string): Buffer {
  return awsMessage(texts({ ':message-type': 'error', ':error-code': code, ':error-message': message }), '');
}
