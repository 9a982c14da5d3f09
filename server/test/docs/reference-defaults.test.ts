/** What the API reference says of defaults: a field that has one may be left out. */
import { describe, expect, it } from 'vitest';
import { openApiText } from '../../src/cli/openapi.ts';

interface Node {
  readonly [name: string]: unknown;
}

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Fields that are required and have a default, in whatever a request may hold; `path` is where. */
function contradictions(node: unknown, path: string): string[] {
  if (Array.isArray(node)) return node.flatMap((one, i) => contradictions(one, `${path}[${i}]`));
  if (!isNode(node)) return [];
  const fields = isNode(node.properties) ? node.properties : {};
  const required = Array.isArray(node.required) ? node.required.map(String) : [];
  const parameter = node.required === true && isNode(node.schema) && says(node.schema) ? [path] : [];
  return [
    ...parameter,
    ...required.filter((name) => isNode(fields[name]) && says(fields[name])).map((name) => `${path}.${name}`),
    ...Object.entries(node).flatMap(([name, value]) =>
      // Answers have every field.
      name === 'responses' || name === 'example' ? [] : contradictions(value, `${path}/${name}`),
    ),
  ];
}

const says = (field: Node): boolean =>
  'default' in field || /\bdefault(s to|:|\))/i.test(String(field.description ?? ''));

describe('the API reference', () => {
  it('requires no field of a request that has a default', async () => {
    const { paths } = JSON.parse(await openApiText()) as { paths: object };
    expect(Object.keys(paths).length).toBeGreaterThan(80);
    expect(contradictions(paths, '')).toEqual([]);
  });

  it('the search finds one', () => {
    const schema = { required: ['a', 'b'], properties: { a: { default: 1 }, b: { description: 'Default: none.' } } };
    expect(contradictions({ body: { schema } }, '')).toEqual(['/body/schema.a', '/body/schema.b']);
  });
});
