import { z } from 'zod';

/** `YYYY-MM-DD HH:MM:SS` in UTC, the date format of users and invites. */
export const plainTimeField = z
  .string()
  .regex(/^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}$/)
  .describe('UTC, YYYY-MM-DD HH:MM:SS.');

/** Milliseconds since the epoch in that format; what is below a second is left out. */
export function plainTime(time: number): string {
  return new Date(time).toISOString().slice(0, 19).replace('T', ' ');
}
