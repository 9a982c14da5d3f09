import type { Feed } from '../ports.ts';

/** Hints within one process: every subscriber hears every publish, soon after and never inside the call. */
export function memoryFeed(): Feed {
  const listeners = new Set<(seq: number) => void>();
  return {
    publish(seq) {
      for (const listener of listeners) {
        queueMicrotask(() => {
          if (listeners.has(listener)) listener(seq);
        });
      }
    },
    subscribe(onHint) {
      const listener = (seq: number): void => onHint(seq);
      listeners.add(listener);
      return () => {
        listeners.delete(listener);
      };
    },
    async close() {
      listeners.clear();
    },
  };
}
