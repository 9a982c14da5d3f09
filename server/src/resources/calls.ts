import type { Call } from './resource.ts';

/** What is done to one object; further actions count as the verb that their scope is most like. */
export type ItemVerb = 'read' | 'update' | 'delete';

/** The query of a path to one object or to a list, parsed: filters are the resource's, tenant and page are added. */
export type LooseCall<B = unknown> = Call<Readonly<Record<string, string>>, Readonly<Record<string, unknown>>, B>;
