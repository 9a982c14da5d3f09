import { readFile } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { judgeOf, outsideOf, problems, subjectOf } from '../../test/support/guardrails.ts';
import { atOnce } from '../kernel/turns.ts';
import { issuesOf } from '../resources/issues.ts';
import { compileCheck, nearestId, readChecks } from './catalog.ts';
import { CheckError } from './check.ts';
import { CHECKS } from './checks/index.ts';
import { forwarded, forwardHeaderProblem } from './forward-headers.ts';

const paths = (checks: unknown, target: 'llm' | 'mcp_tools' = 'llm') => {
  const parsed = atOnce(readChecks(target, checks));
  return parsed.success ? [] : issuesOf(parsed.error, 'checks').map(({ path }) => path);
};

/** Parameters with which each check can be made. */
const LEAST: Readonly<Record<string, Record<string, unknown>>> = {
  'default.regexMatch': { rule: 'a' },
  'default.endsWith': { suffix: '.' },
  'default.contains': { words: ['a'] },
  'default.containsCode': { format: 'SQL' },
  'default.jsonSchema': { schema: {} },
  'default.jsonKeys': { keys: ['a'] },
  'default.modelWhitelist': { models: ['gpt-5'] },
  'default.modelRules': { rules: { defaults: ['*'] } },
  'default.allowedRequestTypes': { allowedTypes: ['chatComplete'] },
  'default.requiredMetadataKeys': { metadataKeys: ['a'] },
  'default.requiredMetadataKeyPairs': { metadataPairs: { a: ['b'] } },
  'default.jwt': { headerKey: 'x-token', jwksUri: 'https://id.example/jwks' },
  'default.addPrefix': { prefix: 'a' },
  'default.webhook': { webhookURL: 'https://hook.example' },
  'default.log': { logURL: 'https://log.example' },
  'gateway.pii': { categories: ['EMAIL_ADDRESS'] },
  'gateway.language': { language: 'eng_Latn' },
};

describe('the checks of a guardrail', () => {
  it('every published deterministic check is there under its id', () => {
    const published =
      'regexMatch sentenceCount wordCount characterCount alluppercase isAllLowerCase endsWith contains containsCode jsonSchema jsonKeys validUrls notNull modelWhitelist modelRules allowedRequestTypes requiredMetadataKeys requiredMetadataKeyPairs requestParametersCheck jwt addPrefix inlineImageUrls webhook log';
    for (const id of published.split(' ')) expect(CHECKS.has(`default.${id}`), id).toBe(true);
    for (const id of ['pii', 'language', 'gibberish', 'secrets', 'promptInjection'])
      expect(CHECKS.has(`gateway.${id}`), id).toBe(true);
  });

  it('the guide has a row for every check, which names its parameters and no check that is not there', async () => {
    const guide = new URL('../../../docs/guides/guardrail-checks.md', import.meta.url);
    const rows = (await readFile(guide, 'utf8')).split('\n').filter((line) => line.startsWith('| `'));
    const idsOf = (row: string): string[] => (row.split('|')[1] ?? '').match(/`[a-zA-Z]+\.[a-zA-Z]+`/g) ?? [];
    const known = [...CHECKS].map(([id, { parameters }]) => {
      const row = rows.filter((one) => idsOf(one).includes(`\`${id}\``)).join('\n');
      const { shape } = parameters as unknown as { shape: object };
      return [id, row !== '', Object.keys(shape).filter((name) => !row.includes(`\`${name}`))];
    });
    expect(known).toEqual([...CHECKS.keys()].map((id) => [id, true, []]));
    for (const id of rows.flatMap(idsOf)) expect(CHECKS.has(id.slice(1, -1)), id).toBe(true);
  });

  it('a fault is reported with its path', () => {
    expect(paths([{ id: 'default.notNull' }, { id: 'default.regexMatch', parameters: { rule: '(' } }])).toEqual([
      'checks[1].parameters.rule',
    ]);
    expect(paths([{ id: 'default.regexMatch', parameters: {} }])).toEqual(['checks[0].parameters.rule']);
    expect(paths([{ id: 'default.regexMatch' }])).toEqual(['checks[0].parameters.rule']);
    expect(paths([{ id: 'default.notNull', parameters: { nope: 1 } }])).toEqual(['checks[0].parameters.nope']);
    expect(paths([{ id: 'default.notNull', colour: 'red' }])).toEqual(['checks[0].colour']);
    expect(paths([{ id: 'default.contains', parameters: { words: ['a', ''] } }])).toEqual([
      'checks[0].parameters.words[1]',
    ]);
    expect(
      paths([{ id: 'default.jsonSchema', parameters: { schema: { properties: { a: { type: 'nope' } } } } }]),
    ).toEqual(['checks[0].parameters.schema.properties.a.type']);
    expect(
      paths([{ id: 'default.log', parameters: { logURL: 'https://a.example', forwardHeaders: ['cookie'] } }]),
    ).toEqual(['checks[0].parameters.forwardHeaders[0]']);
    expect(paths([])).toEqual(['checks']);
  });

  it('an unknown id is refused and the nearest one is suggested', () => {
    expect(problems('default.regexmatch', {})).toEqual([
      '[0].id: is not a known check; did you mean default.regexMatch?',
    ]);
    expect(nearestId('default.wordcounts')).toBe('default.wordCount');
    expect(nearestId('regexMatch')).toBe('default.regexMatch');
    expect(nearestId('gateway.promptinjection')).toBe('gateway.promptInjection');
    expect(nearestId('completely.different')).toBeNull();
    expect(nearestId('x'.repeat(100))).toBeNull();
  });

  it('a check that the target does not allow is refused', () => {
    expect(problems('default.modelWhitelist', { models: ['a'] }, 'mcp_tools')).toEqual([
      '[0].id: cannot be used in a guardrail with target mcp_tools',
    ]);
    expect(problems('default.contains', { words: ['a'] }, 'mcp_tools')).toEqual([]);
    expect(
      compileCheck({ id: 'default.addPrefix', is_enabled: true, parameters: { prefix: 'a' } }, 'mcp_tools'),
    ).toBeNull();
  });

  it('a stored check that is no longer valid is not compiled', () => {
    expect(compileCheck({ id: 'gone.away', is_enabled: true }, 'llm')).toBeNull();
    const old = { webhookURL: 'https://a.example', forwardHeaders: ['authorization'] };
    expect(compileCheck({ id: 'default.webhook', is_enabled: true, parameters: old }, 'llm')).toBeNull();
    const now = compileCheck(
      { id: 'default.webhook', is_enabled: true, parameters: { webhookURL: 'https://a.example' } },
      'llm',
    );
    expect(now?.common).toEqual({ timeoutMs: 3_000, failOnError: false, forwardHeaders: [], credentials: null });
  });

  it('whatever parameters are sent, every check accepts them or says where the fault is', () => {
    const words = [
      'rule',
      'words',
      'schema',
      'rules',
      'categories',
      'not',
      'operator',
      'maxWords',
      'jwks',
      'timeout',
      '__proto__',
    ];
    const json = fc.jsonValue({ maxDepth: 4 });
    const anything = fc.dictionary(fc.oneof(fc.constantFrom(...words), fc.string({ maxLength: 8 })), json, {
      maxKeys: 5,
    });
    fc.assert(
      fc.property(fc.constantFrom(...CHECKS.keys()), anything, json, (id, sent, odd) => {
        const known = Object.keys(LEAST[id] ?? {});
        for (const parameters of [
          sent,
          { ...LEAST[id], ...sent },
          odd,
          ...known.map((key) => ({ ...LEAST[id], [key]: odd })),
        ]) {
          const parsed = atOnce(readChecks('llm', [{ id, parameters }]));
          if (parsed.success)
            compileCheck({ id, is_enabled: true, parameters: parameters as Record<string, unknown> }, 'llm');
          else
            for (const { path } of issuesOf(parsed.error, 'checks')) expect(path).toMatch(/^checks\[0\]\.parameters/);
        }
      }),
      { numRuns: 400 },
    );
  });

  it('any schema is refused with its path or judges any value within its budget', () => {
    const keyword = fc.constantFrom(
      'type',
      'properties',
      'items',
      'allOf',
      'anyOf',
      'not',
      '$ref',
      'required',
      'pattern',
      'enum',
      'const',
      'minLength',
      '$defs',
      'if',
      'contains',
    );
    const schema = fc.dictionary(
      keyword,
      fc.oneof(fc.jsonValue({ maxDepth: 3 }), fc.constant('#'), fc.constant([{ $ref: '#' }, { $ref: '#' }])),
    );
    fc.assert(
      fc.property(schema, fc.jsonValue(), (made, value) => {
        const sent = { schema: made };
        if (problems('default.jsonSchema', sent).length > 0) return;
        try {
          judgeOf('default.jsonSchema', sent).judge(subjectOf(JSON.stringify(value)), outsideOf());
        } catch (error) {
          expect(error).toBeInstanceOf(CheckError);
        }
      }),
      { numRuns: 300 },
    );
  });
});

describe('headers that are forwarded to a check', () => {
  it.each(
    'authorization x-api-key ocp-apim-subscription-key proxy-authorization cookie metadata-flavor x-aws-ec2-metadata-token x-google-metadata-request connection host transfer-encoding keep-alive te trailer upgrade proxy-authenticate content-length x-gateway-api-key x-gateway-config X-Tenant x_tenant x-* * x-'.split(
      ' ',
    ),
  )('%s is refused', (name) => {
    expect(forwardHeaderProblem(name)).not.toBeNull();
  });

  it.each(
    'x-tenant x-request-id x-gateway-trace-id x-gateway-span-id traceparent tracestate accept-language user-agent x-user-id x-forwarder a 1 x-a-b-c x-correlation-id baggage x-session-ref x-team x-region x-app-version cf-ray'.split(
      ' ',
    ),
  )('%s is allowed', (name) => {
    expect(forwardHeaderProblem(name)).toBeNull();
  });

  it('a valid traceparent passes unchanged, and without one it is made of the trace id', () => {
    const sent = `00-${'a'.repeat(32)}-${'b'.repeat(16)}-00`;
    expect(forwarded(['traceparent'], subjectOf({ headers: { traceparent: sent } }))).toEqual({ traceparent: sent });
    const headers = {
      'x-gateway-trace-id': '0af76519-16cd-43dd-8448-eb211c80319c',
      'x-gateway-span-id': 'b7ad6b7169203331',
    };
    expect(forwarded(['traceparent', 'x-tenant'], subjectOf({ headers }))).toEqual({
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    });
    const made = forwarded(['traceparent'], subjectOf({ headers: { 'x-gateway-trace-id': 'order 7' } }));
    expect(made.traceparent).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    expect(forwarded(['traceparent'], subjectOf({}))).toEqual({});
  });
});
