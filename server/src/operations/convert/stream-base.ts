import { SluiceError } from '../../kernel/errors.ts';
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { parseExact } from '../../kernel/json-exact.ts';
import type { Dialect } from '../dialects/dialect.ts';
import type { ProviderError } from '../dialects/provider-error.ts';
import { errorEvent } from '../dialects/stream.ts';
import type { StreamEvent, StreamTransform } from '../stream.ts';
import { invalidAnswer } from './fields.ts';

export type Emit = (event: StreamEvent) => void;

export const streamCut = (): SluiceError =>
  new SluiceError('upstream_cut', 'The provider closed the stream before the answer was complete.');

/**
 * What every converting stream has in common: JSON is read once, nothing throws, nothing follows an error or the end
 * marker, and an upstream that closes too early ends in an error event.
 */
export abstract class ConvertingStream implements StreamTransform {
  /** The end marker or an error went out. */
  protected closed = false;
  readonly #dialect: Dialect;

  constructor(dialect: Dialect) {
    this.#dialect = dialect;
  }

  /** One parsed event. `[DONE]` never arrives here. */
  protected abstract read(data: JsonObject, emit: Emit): void;
  /** `[DONE]` came, or the upstream closed. Writes the end of the answer, or throws when it is not complete. */
  protected abstract finish(emit: Emit, done: boolean): void;
  /** Next `sequence_number`, for dialects that have one. */
  protected nextSequence(): number {
    return 0;
  }

  event(event: StreamEvent, emit: Emit): void {
    // An event without data says nothing, by the standard of these streams.
    if (this.closed || event.data === '') return;
    this.#guarded(emit, () => {
      if (event.data === '[DONE]') {
        this.finish(emit, true);
        return;
      }
      let data: JsonValue = null;
      try {
        data = parseExact(event.data);
      } catch {
        throw invalidAnswer('The provider sent a stream event that is no JSON.');
      }
      if (!isObject(data)) throw invalidAnswer('The provider sent a stream event that is no JSON object.');
      this.read(data, emit);
    });
  }

  end(emit: Emit): void {
    if (this.closed) return;
    this.#guarded(emit, () => {
      this.finish(emit, false);
    });
  }

  protected fail(error: SluiceError | ProviderError, emit: Emit): void {
    if (this.closed) return;
    this.closed = true;
    emit(errorEvent(error, this.#dialect, this.nextSequence()));
  }

  #guarded(emit: Emit, step: () => void): void {
    try {
      step();
    } catch (error) {
      if (!(error instanceof SluiceError)) throw error;
      this.fail(error, emit);
    }
  }
}
