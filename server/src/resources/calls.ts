import type { Call } from './resource.ts';

/** What is done to one object; further actions count as the verb that their scope is most like. */
export type ItemVerb = 'read' | 'update' | 'delete';

/** A call on the object that the path names. */
export type ItemCall<Q = unknown, B = unknown> = Call<Readonly<Record<string, string>>, Q, B>;
