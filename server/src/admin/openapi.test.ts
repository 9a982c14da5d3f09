import { describe, expect, it } from 'vitest';
import { isObject, type JsonObject, type JsonValue } from '../kernel/json.ts';
import { dataPlanePaths } from '../llm/openapi.ts';
import { oauthPaths } from '../oauth/openapi.ts';
import { ssoPaths } from '../oidc/openapi.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { CONSOLE_ROUTES } from './console.ts';
import { buildOpenApi, consoleDocument } from './openapi.ts';
import { Components, shareParameters } from './openapi-components.ts';
import { PROVIDER_ROUTES } from './sign-in.ts';

const document = buildOpenApi(ACTIONS, '1.2.3', { ...dataPlanePaths(), ...oauthPaths(), ...ssoPaths() }) as {
  paths: Record<string, Record<string, JsonObject>>;
  components: Record<string, JsonObject>;
  tags: JsonObject[];
};
const operations = Object.values(document.paths).flatMap((item) => Object.values(item));

function refs(value: JsonValue | undefined): string[] {
  if (Array.isArray(value)) return value.flatMap(refs);
  if (!isObject(value)) return [];
  return Object.entries(value).flatMap(([name, one]) => (name === '$ref' ? [String(one)] : refs(one)));
}

const at = (ref: string) =>
  ref
    .slice(2)
    .split('/')
    .reduce<JsonValue | undefined>((value, name) => (isObject(value) ? value[name] : undefined), document as never);

describe('the OpenAPI document', () => {
  it('says of every tag what its operations are about', () => {
    const { tags } = document;
    expect(tags.length).toBeGreaterThan(20);
    expect(tags.filter(({ description }) => typeof description !== 'string')).toEqual([]);
  });

  it('has nothing of the calls that only the console makes; their document has all of them', () => {
    expect(Object.keys(document.paths).filter((path) => path.startsWith('/console'))).toEqual([]);
    const served = CONSOLE_ROUTES.filter(([, path]) => /^\/(?:console\/api|v2)\//.test(path));
    const described = Object.entries(consoleDocument().paths as JsonObject).flatMap(([path, item]) =>
      Object.keys(item as JsonObject).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const named = served.map(([method, path]) => `${method} ${path.replace(/:(\w+)/g, '{$1}')}`);
    expect(described.sort()).toEqual(named.sort());
  });

  it('has every route of signing in that a provider calls', () => {
    const described = Object.entries(ssoPaths()).flatMap(([path, item]) =>
      Object.keys(item as JsonObject).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const served = PROVIDER_ROUTES.map(
      ([method, url]) => `${method} ${url.replace(':ssoClientId', '{sso_client_id}')}`,
    );
    expect(described.sort()).toEqual([...served].sort());
  });

  it('names the body and the answer of every administration operation', () => {
    const anonymous = operations
      .filter(({ operationId }) => ACTIONS.some(({ id }) => id === String(operationId).replace(/\.alias\d+$/, '')))
      .flatMap(({ operationId, requestBody, responses }) => {
        const bodies = [requestBody, ...Object.values(isObject(responses) ? responses : {})].flatMap((one) =>
          isObject(one) && isObject(one.content) ? Object.values(one.content) : [],
        );
        return bodies.some((one) => isObject(one) && isObject(one.schema) && !('$ref' in one.schema))
          ? [operationId]
          : [];
      });
    expect(anonymous).toEqual([]);
  });

  it('has what it refers to, and nothing that nothing refers to', () => {
    const used = new Set(refs(document as never));
    expect([...used].filter((ref) => at(ref) === undefined)).toEqual([]);
    const kept = Object.entries(document.components).filter(([kind]) => kind !== 'securitySchemes');
    const unused = kept
      .flatMap(([kind, of]) => Object.keys(of).map((name) => `#/components/${kind}/${name}`))
      .filter((ref) => !used.has(ref));
    expect(unused).toEqual([]);
  });

  it('has names that programs can use, and each operation id once', () => {
    const names = Object.keys(document.components.schemas ?? {});
    expect(names.filter((name) => !/^[A-Z][A-Za-z0-9]*$/.test(name))).toEqual([]);
    expect(names).toEqual(expect.arrayContaining(['Config', 'ConfigList', 'ConfigCreate', 'UsageLimit', 'Workspace']));
    const ids = operations.map(({ operationId }) => operationId);
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('says the same for a path and its aliases by the same components', () => {
    for (const [path, item] of Object.entries(document.paths)) {
      const elsewhere = document.paths[path.replace('/v1/admin/workspaces', '/v2/workspaces')];
      if (elsewhere === undefined || elsewhere === item) continue;
      for (const [method, { operationId: _id, ...operation }] of Object.entries(item)) {
        const { operationId: _other, ...other } = elsewhere[method] ?? {};
        expect(other, `${method} ${path}`).toEqual(operation);
      }
    }
  });
});

describe('components', () => {
  it('take a titled schema wherever it stands, and leave a property of that name alone', () => {
    const components = new Components();
    const note = { title: 'Note', type: 'object', properties: { title: { type: 'string' } } };
    const list = { type: 'array', items: note };
    expect(components.schema(list, 'output')).toEqual({ type: 'array', items: { $ref: '#/components/schemas/Note' } });
    expect(components.schemas).toEqual({ Note: { type: 'object', properties: { title: { type: 'string' } } } });
  });

  it('keep what comes in apart from what goes out, and refuse two schemas of one name', () => {
    const components = new Components();
    components.schema({ title: 'Note', type: 'object' }, 'output');
    const input = { title: 'Note', type: 'object', required: ['text'] };
    expect(components.schema(input, 'input')).toEqual({ $ref: '#/components/schemas/NoteInput' });
    expect(() => components.schema({ title: 'Note', type: 'string' }, 'output')).toThrow(/are named Note/);
  });

  it('share a parameter that three operations have in its most frequent form', () => {
    const page = (maximum: number) => ({ parameters: [{ name: 'page_size', in: 'query', schema: { maximum } }] });
    const paths = { '/a': { get: page(1), put: page(2) }, '/b': { get: page(2), put: page(2) } };
    expect(Object.keys(shareParameters(paths))).toEqual(['PageSize']);
    expect(paths['/a'].put.parameters).toEqual([{ $ref: '#/components/parameters/PageSize' }]);
    expect(paths['/a'].get).toEqual(page(1));
  });
});
