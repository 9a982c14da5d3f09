/** Messages of an AWS event stream as server-sent events, so that everything behind the framing sees one kind of stream. */
import { AwsEventStream, type AwsMessage } from '../../kernel/aws-event-stream.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { isObject } from '../../kernel/json.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { formatEvent, type StreamEvent } from '../../operations/stream.ts';
import { awsStreamError } from './errors.ts';

/** The answer of an operation, ahead of the events of its stream: of no use to anybody. */
const INITIAL = 'initial-response';

/** An event of the model's own stream, as InvokeModel wraps it: `{bytes: base64}`. */
function modelEvent(payload: Buffer): StreamEvent {
  const wrapped: unknown = parseJson(payload.toString('utf8'));
  if (!isObject(wrapped) || typeof wrapped.bytes !== 'string') throw new TypeError('a chunk without bytes');
  const data = Buffer.from(wrapped.bytes, 'base64').toString('utf8');
  const event: unknown = parseJson(data);
  return { event: isObject(event) && typeof event.type === 'string' ? event.type : null, data };
}

function eventOf({ headers, payload }: AwsMessage): StreamEvent | null {
  const type = headers.get(':event-type') ?? '';
  if (type === INITIAL) return null;
  if (type === 'chunk') return modelEvent(payload);
  // As the SDKs show it: an object whose one key names the event. The content stays as it came.
  return { event: type, data: `{${JSON.stringify(type)}:${payload.length === 0 ? '{}' : payload.toString('utf8')}}` };
}

function exceptionOf({ headers, payload }: AwsMessage): SluiceError {
  if (headers.get(':message-type') === 'exception') {
    return awsStreamError(headers.get(':exception-type') ?? '', payload.toString('utf8'));
  }
  const message = headers.get(':error-message') ?? 'The provider ended the stream with an error.';
  return awsStreamError(headers.get(':error-code') ?? '', JSON.stringify({ message }));
}

/**
 * Takes the bytes of a stream and gives whole server-sent events. Events of Converse are `{"<event type>": <payload>}`
 * under their type; chunks of InvokeModel are the model's own events, named by their `type`.
 */
export class AwsFrames {
  readonly #stream = new AwsEventStream();
  /** An exception came, or bytes that cannot be read: nothing follows. */
  broken: SluiceError | null = null;

  push(chunk: Buffer): Buffer[] {
    const out: Buffer[] = [];
    if (this.broken !== null) return out;
    try {
      for (const message of this.#stream.push(chunk)) {
        if ((message.headers.get(':message-type') ?? 'event') !== 'event') {
          this.broken = exceptionOf(message);
          break;
        }
        const event = eventOf(message);
        if (event !== null) out.push(Buffer.from(formatEvent(event)));
      }
    } catch (error) {
      this.broken =
        error instanceof SluiceError
          ? error
          : new SluiceError('upstream_invalid', 'The provider sent a stream event that cannot be read.', {
              detail: error,
            });
    }
    return out;
  }

  /** Messages come whole. */
  held(): null {
    return null;
  }

  /** Messages say themselves where they end. */
  last(): null {
    return null;
  }

  /** Half a message is never passed on. */
  rest(): null {
    return null;
  }
}
