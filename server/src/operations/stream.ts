export { formatEvent } from '../kernel/sse.ts';

/** One server-sent event, decoded. `event` is null where the stream has no event names. */
export interface StreamEvent {
  readonly event: string | null;
  readonly data: string;
}

/** Turns the upstream's events into the events of `shape`. State lives in the instance; one instance per answer. */
export interface StreamTransform {
  event(event: StreamEvent, emit: (event: StreamEvent) => void): void;
  /** The upstream ended. Must emit an error event, and no end marker, when the terminal event never came. */
  end(emit: (event: StreamEvent) => void): void;
}

/** Feeds the events of `first` into `second`; ends both. */
export function chain(first: StreamTransform, second: StreamTransform): StreamTransform {
  return {
    event(event, emit) {
      first.event(event, (between) => second.event(between, emit));
    },
    end(emit) {
      first.end((between) => second.event(between, emit));
      second.end(emit);
    },
  };
}
