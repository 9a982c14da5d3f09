import type { Clock } from './clock.ts';
import type { Log } from './log.ts';
import { NOTES } from './notes.ts';

/** Lines of one kind that are written as they come, in the first window of an incident. */
const LINES = 3;
const WINDOW_MS = 60_000;
/** Kinds that are followed at the same time; messages are fixed texts, so there are never so many. */
const KINDS = 500;
/** Bounded where they are made. */
const BOUNDED: ReadonlySet<string> = new Set(Object.values(NOTES));

interface Incident {
  /** All of its lines, and those since the last sum that were left out. */
  total: number;
  leftOut: number;
}

/**
 * A log that an outage does not flood: of each warning and error (by its message) the first three lines are written, then
 * one sum a minute, `repeated` being the number of lines left out, and one line when a minute has passed without any.
 */
export function calmLog(log: Log, clock: Clock): Log {
  const incidents = new Map<string, Incident>();
  const calm = (level: 'warn' | 'error') => (message: string, fields?: Record<string, unknown>) => {
    if (BOUNDED.has(message)) {
      log[level](message, fields);
      return;
    }
    const key = `${level} ${message}`;
    let incident = incidents.get(key);
    if (incident === undefined && incidents.size < KINDS) {
      incident = { total: 0, leftOut: 0 };
      incidents.set(key, incident);
      follow(level, message, key, incident);
    }
    if (incident !== undefined && ++incident.total > LINES) incident.leftOut += 1;
    else log[level](message, fields);
  };

  function follow(level: 'warn' | 'error', message: string, key: string, incident: Incident): void {
    clock.after(WINDOW_MS, () => {
      const { total, leftOut } = incident;
      if (leftOut > 0) {
        log[level](message, { repeated: leftOut, seconds: WINDOW_MS / 1000, total });
        incident.leftOut = 0;
        follow(level, message, key, incident);
        return;
      }
      incidents.delete(key);
      if (total > LINES) log.info(`${message}: not seen for a minute`, { total });
    });
  }

  return { debug: log.debug, info: log.info, warn: calm('warn'), error: calm('error') };
}
