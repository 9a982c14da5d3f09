/** One object that always exists, such as the settings of an organisation: read with GET, set with PUT. */
import type { z } from 'zod';
import { type Action, type AnswerValue, type AnyAction, action, type Call } from '../resource.ts';
import type { Work } from '../services.ts';
import type { Described } from '../spec.ts';

export interface Singleton<Q, B, R, U> {
  /** Start of both ids: `organisation.settings`. */
  readonly name: string;
  readonly tag: string;
  readonly path: string;
  readonly auth?: Action['auth'];
  readonly read: Described & {
    /** Default `read`: last part of id and scope. */
    readonly verb?: 'read' | 'list';
    readonly summary: string;
    readonly response: z.ZodType<unknown, R>;
    run(call: Call<unknown, Q>): Promise<AnswerValue<NoInfer<R>>>;
  };
  readonly update: Described & {
    readonly summary: string;
    readonly body: z.ZodType<B>;
    readonly response: z.ZodType<unknown, U>;
    /** As `Action.ahead`. */
    ahead?(call: Call<unknown, unknown, B>): Promise<Work<unknown> | null>;
    /** Writes, and names what it did in the audit log and in the feed. */
    run(call: Call<unknown, unknown, B>): Promise<AnswerValue<NoInfer<U>>>;
  };
  /** Prefix of the scopes. */
  readonly scopes: string;
  readonly query: z.ZodType<Q>;
  /** What the audit log calls it. */
  readonly resource: string;
}

/** Turns a declared singleton into its two actions. */
export function singleton<Q, B, R, U>(own: Singleton<Q, B, R, U>): AnyAction[] {
  const { read, update } = own;
  const verb = read.verb ?? 'read';
  const common = {
    path: own.path,
    tag: own.tag,
    auth: own.auth ?? ('key_or_login' as const),
    tenant: 'organisation' as const,
    params: null,
  };
  return [
    action<unknown, Q, unknown, R>({
      ...common,
      ...read,
      id: `${own.name}.${verb}`,
      method: 'GET',
      scopes: [`${own.scopes}.${verb}`],
      query: own.query,
      body: null,
      writes: false,
      audit: null,
    }),
    action<unknown, unknown, B, U, unknown>({
      ...common,
      ...update,
      id: `${own.name}.update`,
      method: 'PUT',
      scopes: [`${own.scopes}.update`],
      query: null,
      writes: true,
      audit: { action: 'update', resource: own.resource },
    }),
  ];
}
