import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { consoleDocument } from '../server/src/admin/openapi.ts';
import { typesOf } from './write-api-types.ts';

const text = (schema: object, operation: object = {}) =>
  typesOf([{ paths: { '/v1/a/{id}': { get: operation } }, components: { schemas: { A: schema } } } as never]);

test('a schema becomes the type of what it lets through', () => {
  const cases: [object, string][] = [
    [{ type: 'integer', minimum: 1 }, 'number'],
    [{ type: ['string', 'null'] }, '(string) | (null)'],
    [{ anyOf: [{ type: 'array', items: { $ref: '#/components/schemas/B' } }, { type: 'null' }] }, '((B)[]) | (null)'],
    [{ enum: ['a', 1] }, '"a" | 1'],
    [{ const: true }, 'true'],
    [{ type: 'object', properties: {} }, 'Record<string, never>'],
    [{ type: 'object', additionalProperties: { type: 'string' } }, '{ [name: string]: string }'],
    [
      { type: 'object', required: ['a'], properties: { a: { type: 'string' }, b: { type: 'boolean' } } },
      '{ "a": string; "b"?: boolean; }',
    ],
    [{ not: {} }, 'never'],
    [{}, 'unknown'],
  ];
  for (const [schema, type] of cases) expect(text(schema)).toContain(`export type A = ${type};\n`);
});

test('an operation has its path, query and body, and the answer of its success', () => {
  const schema = { $ref: '#/components/schemas/A' };
  const made = text(
    {},
    {
      operationId: 'a.read',
      parameters: [
        { name: 'id', in: 'path', required: true, schema: { type: 'string' } },
        { name: 'limit', in: 'query', required: false, schema: { type: 'integer' } },
        { name: 'x-other', in: 'header', required: true, schema: { type: 'string' } },
      ],
      requestBody: { required: true, content: { 'application/json': { schema } } },
      responses: { '400': {}, '201': { content: { 'application/json': { schema } } } },
    },
  );
  expect(made).toContain(
    '"GET /v1/a/{id}": { input: { path: { "id": string; }; query?: { "limit"?: number; }; body: A; }; answer: A };',
  );
  const bare = text({}, { operationId: 'a.delete', responses: { '204': {} } });
  expect(bare).toContain('"GET /v1/a/{id}": { input: Record<string, never>; answer: undefined };');
});

test('two schemas of one name are an error: one would be typed as the other', () => {
  const document = { paths: {}, components: { schemas: { A: {} } } };
  expect(() => typesOf([document, document])).toThrow('two schemas are named A');
});

test('every call that only the console makes has types', () => {
  const made = typesOf([consoleDocument()]);
  expect(made).toContain(
    '"POST /console/api/session": { input: { body: ConsoleSessionCreateBody; }; answer: ConsoleSession };',
  );
  expect(made).toContain('"DELETE /console/api/session": { input: Record<string, never>; answer: undefined };');
  const untyped = made.split('\n').filter((line) => line.endsWith('answer: unknown };'));
  expect(untyped).toEqual(['"POST /console/api/try": { input: { body: ConsoleTryBody; }; answer: unknown };']);
});

test('the console calls its server by operations only', () => {
  const src = path.join(import.meta.dirname, 'src');
  const calling = readdirSync(src, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.tsx?$/.test(name))
    .filter((name) =>
      /\bfetch\(|XMLHttpRequest|EventSource|sendBeacon/.test(readFileSync(path.join(src, name), 'utf8')),
    );
  expect(calling).toEqual([path.join('api', 'client.ts'), path.join('api', 'upload.ts')]);
});
