import { expectTypeOf, test } from 'vitest';
import { z } from 'zod';
import type { Row } from '../store/schema.ts';
import { itemAction } from './define.ts';
import { childList } from './kinds/child.ts';
import { action } from './resource.ts';
import { resourceSpec } from './spec.ts';

// `tsc -p server` checks these: each ts-expect-error is an error itself where the line below it compiles.

const item = z.object({ id: z.string(), name: z.string() });
const row = {} as Row<'configs'>;

const common = {
  name: 'notes',
  tag: 'Notes',
  table: 'configs',
  path: '/notes',
  param: 'id',
  scopes: ['configs'],
  tenant: 'workspace',
  object: 'note',
  archives: true,
} as const;
const none = { create: null, update: null, remove: null } as const;
const one = { detail: item, present: ({ id, name }: Row<'configs'>) => ({ id, name }) };
const list = { query: z.object({}), defaultPageSize: 10, maxPageSize: 10, item };

const spec = resourceSpec({ ...common, ...none, ...one, list: null });

test('an answer that its schema does not describe does not compile: one object, and an item of a list', () => {
  const wrong = (given: Row<'configs'>) => ({ id: given.id, name: 1 });
  // @ts-expect-error `name` is a text
  resourceSpec({ ...common, ...none, list: null, detail: item, present: wrong });
  // @ts-expect-error `name` is missing
  resourceSpec({ ...common, ...none, ...one, list: { ...list, present: ({ id }) => ({ id }) } });
  // @ts-expect-error `name` is a text on whole pages as well
  resourceSpec({ ...common, ...none, ...one, list: { ...list, presentAll: async (rows) => rows.map(wrong) } });
  // @ts-expect-error a list says how it presents its items
  resourceSpec({ ...common, ...none, ...one, list });
  resourceSpec({ ...common, ...none, ...one, list: { ...list, present: one.present } });
});

test('a filter or a query that the schema does not have does not compile', () => {
  resourceSpec({
    ...common,
    ...none,
    detail: item,
    list: {
      ...list,
      query: z.object({ status: z.enum(['active', 'archived']).optional() }),
      where: ({ query }) => {
        expectTypeOf(query.status).toEqualTypeOf<'active' | 'archived' | undefined>();
        // @ts-expect-error there is no such filter
        return { name: query.named };
      },
      present: one.present,
    },
    get: { query: z.object({ full: z.boolean().optional() }) },
    present: ({ id, name }, { query }) => {
      expectTypeOf(query.full).toEqualTypeOf<boolean | undefined>();
      return { id, name };
    },
  });
});

test('a field that a body does not have, and an answer of a write that misses one, do not compile', () => {
  const body = z.strictObject({ text: z.string() });
  const id = z.object({ id: z.string() });
  resourceSpec({
    ...common,
    ...one,
    list: null,
    create: {
      body,
      response: id,
      run: async (call) => {
        expectTypeOf(call.body).toEqualTypeOf<{ text: string }>();
        // @ts-expect-error the body has no `name`
        expectTypeOf(call.body.name).toBeString();
        return { row, answer: { id: row.id } };
      },
    },
    update: {
      body,
      response: id,
      // @ts-expect-error the answer has an `id`
      run: async (call) => ({ patch: { name: call.body.text }, answer: {} }),
    },
    remove: {
      query: z.object({ force: z.boolean().optional() }),
      // @ts-expect-error the query has no `forced`
      check: async ({ query }) => expectTypeOf(query.forced).toBeBoolean(),
    },
  });
});

test('further actions, lists below an object and actions alone are tied to their schemas as well', () => {
  const read = { method: 'GET', summary: 'Read it', verb: 'read', response: item, audit: null } as const;
  // @ts-expect-error `name` is missing
  itemAction(spec, { ...read, name: 'read', run: async (_call, { id }) => ({ answer: { id } }) });
  itemAction(spec, { ...read, name: 'read', run: async (_call, { id, name }) => ({ answer: { id, name } }) });
  childList(spec, {
    name: 'versions',
    summary: 'List them',
    table: 'config_versions',
    query: z.object({ number: z.int().optional() }),
    where: ({ id }, { query }) => {
      expectTypeOf(query.number).toEqualTypeOf<number | undefined>();
      return { config_id: id };
    },
    item,
    // @ts-expect-error `name` is a text
    present: (rows) => rows.map(({ id, number: name }) => ({ id, name })),
  });
  action({
    id: 'notes.count',
    method: 'GET',
    path: '/notes/count',
    summary: 'Count them',
    tag: 'Notes',
    auth: 'key_or_login',
    scopes: ['configs.list'],
    tenant: 'workspace',
    params: null,
    query: null,
    body: null,
    response: z.object({ total: z.int() }),
    writes: false,
    audit: null,
    // @ts-expect-error the answer is called `total`
    run: async () => ({ count: 1 }),
  });
});
