/** Rules of the code beside who may import whom: what organisations share, what is weighed, who knows operations and errors. */
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ADMIN_ERRORS } from '../src/admin/errors.ts';
import { ERROR_KINDS } from '../src/kernel/errors.ts';
import { ANTHROPIC_ERRORS } from '../src/operations/dialects/anthropic-errors.ts';
import { OPENAI_ERRORS } from '../src/operations/dialects/openai-errors.ts';
import { IN_ITS_STEAD } from '../src/operations/dialects/provider-error.ts';
import { OPERATIONS } from '../src/operations/operation.ts';
import { SHAPES } from '../src/operations/shapes/index.ts';
import { product, ROOT, SRC, uncommented, users, walk } from './support/sources.ts';

describe('sources', () => {
  it('are what Node.js itself can run, also those that are loaded on first use', () => {
    const faults = product.flatMap(({ path, text }) => {
      try {
        stripTypeScriptTypes(text);
        return [];
      } catch (error) {
        return [`${path}: ${String(error)}`];
      }
    });
    expect(faults).toEqual([]);
    // What compiles for the tests, and stops a server.
    expect(() => stripTypeScriptTypes('for (const of of [1]) of;')).toThrow();
  });
});

describe('what organisations share', () => {
  /** How one organisation is kept from taking all of it. A new queue, thread or bound is answered for here. */
  const SHARED: Readonly<Record<string, string>> = {
    'http/body-budget.ts': 'Shares: bytes of bodies',
    'admin/follow.ts': 'Shares: followers of events',
    'admin/mailed-links.ts': 'thirty a quarter of an hour for each client',
    'compose/gateway.ts': 'Shares: requests under way',
    'http/upstream.ts':
      'Shares: connection pools; sockets and waiting calls of a pool are bounded, and a pool is one organisation’s',
    'http/connection-pool.ts': 'a pool is one organisation’s',
    'http/dns.ts': 'five look-ups at work and 64 waiting for each organisation',
    'keeper/log-search.ts': 'Slots: two searches at a time, and of one organisation one beside others',
    'keeper/messages.ts': 'waits for answers, whose questions wait in `keeper/queries.ts`',
    'keeper/queries.ts': 'Slots: four questions about logs at once, two of each organisation, of which 64 more wait',
    'kernel/turns.ts': 'organisations take turns, and one that held the event loop rests',
    'kernel/slots.ts': 'Shares: owners take turns',
    'kernel/thread-pool.ts': 'owners take turns, with one piece of work under way each and a bound of what waits',
    'kernel/pattern-thread.ts': 'ThreadPool: 200 matches waiting for each owner',
    'llm/guard/apart/thread.ts': 'ThreadPool: one run of each owner computes at a time',
    'llm/large/thread.ts': 'ThreadPool: one thread for large bodies, whose bytes have their share',
    'training/datasets/thread.ts': 'Slots: threads that read or convert data sets',
    'training/managed/files.ts': 'Slots: checks of files',
    'guardrails/run.ts': 'of one request',
    'providers/sandbox/call.ts': 'of one call',
    'secrets/open.ts': 'Slots: 32 reads of secret managers, of each organisation its share',
    'store/disk/body-journal.ts': '32 MB of bodies of all organisations wait for the disk; what comes then is dropped',
    'store/sqlite/pool.ts': 'first come, first served: statements are short, and requests under way have their share',
    'store/sqlite/thread.ts': 'the one thread of a database file',
  };

  it('every queue, thread and bound says how it is shared', () => {
    const found = users(/\bnew Worker\(|#waiting\b|\bnew Slots\(|\bnew FairShares\(/, []);
    expect(found.sort()).toEqual(Object.keys(SHARED).sort());
  });
});

describe('what others wrote is weighed before it is parsed', () => {
  const SCANNED = 'a part of a request that `scanJson` has weighed';
  const OWN = 'what Sluice itself wrote or stored';
  /** Where a parser runs that weighs nothing, and what bounds its text. All others use `parseJson` or `parseExact`. */
  const PARSERS: Readonly<Record<string, string>> = {
    'admin/json-body.ts': 'one megabyte at most, which is scanned first',
    'admin/json-entries.ts': 'one megabyte an entry at most, which is scanned first',
    'admin/redact.ts': OWN,
    'admin/respond.ts': OWN,
    'auth/passkeys.ts': 'what a device says, 8 KB at most',
    'cli/help.ts': OWN,
    'cli/openapi.ts': OWN,
    'compose.ts': OWN,
    'compose/exporter.ts': OWN,
    'config.ts': 'settings of the operator',
    'exporter/destinations/runner.ts': OWN,
    'exporter/feed.ts': OWN,
    'guardrails/checks/images.ts': 'a request that was weighed, as a value',
    'guardrails/compile.ts': OWN,
    'guardrails/tool-calls.ts': 'a result that was weighed, as a value',
    'keeper/body-groups.ts': OWN,
    'keeper/fleet-tail.ts': 'at most 50 rows of another node, signed with the master key',
    'keeper/import.ts': OWN,
    'keeper/journal-reader.ts': OWN,
    'keeper/process.ts': OWN,
    'keeper/queries.ts': OWN,
    'oidc/provider.ts': 'keys that were checked when they were saved',
    'oidc/sign-in.ts': 'the head of an ID token whose signature is checked, 64 KB at most',
    'kernel/json-exact.ts': 'the parsers that weigh',
    'kernel/json-scan.ts': SCANNED,
    'kernel/json-strict.ts': 'a part of a token, which has 16 KB at most',
    'limits/ledger/journal.ts': OWN,
    'llm/cache/entry.ts': OWN,
    'llm/relay/failed-answer.ts': 'an error that Sluice has read before',
    'llm/request-body.ts': SCANNED,
    'llm/routing/facts.ts': SCANNED,
    'llm/splice-shaping.ts': SCANNED,
    'llm/steps/build-target-request.ts': 'a header of 16 KB',
    'operations/convert/testing.ts': 'tests',
    'resources/analytics/filters.ts': 'one query parameter, of at most 16384 characters',
    'resources/signed.ts': 'at most 800 characters, whose signature is right',
    'resources/admin/users/address.ts': OWN,
    'resources/common.ts': 'a query of 16 KB',
    'resources/configs/index.ts': 'scanned first',
    'resources/configs/secrets.ts': OWN,
    'resources/guardrails/secrets.ts': OWN,
    'resources/integrations/model-settings.ts': OWN,
    'resources/integrations/secrets.ts': OWN,
    'resources/log-destinations/secrets.ts': OWN,
    'resources/secret-references/auth-config.ts': OWN,
    'store/s3/identity.ts': 'what the platform under the server answers',
    'telemetry/bodies/chunk.ts': OWN,
    'telemetry/bodies/frame.ts': OWN,
    'telemetry/destination-fields.ts': OWN,
    'telemetry/log-columns.ts': OWN,
    'telemetry/logger.ts': OWN,
    'training/dry-run.ts': OWN,
    'training/managed/batch-files.ts': OWN,
    'training/options.ts': 'a header of 16 KB',
    'training/sandbox/run.ts': 'answers of the sandbox',
  };

  it('every other parser says what bounds it', () => {
    expect(users(/\bJSON\.parse\b|\bstructuredClone\b/, []).sort()).toEqual(Object.keys(PARSERS).sort());
  });
});

const SHAPE_NAME = `['"\`](?:${Object.keys(SHAPES).join('|')})['"\`]`;

/** Whether a text is compared with the name of a wire shape, looked up in a list of such, or a case of a switch. */
function comparesShapeName(text: string): boolean {
  const compared = `[!=]==?\\s*${SHAPE_NAME}|${SHAPE_NAME}\\s*[!=]==?|\\bcase ${SHAPE_NAME}|\\b(?:has|includes|indexOf)\\(${SHAPE_NAME}`;
  const listed = `\\bnew (?:Set|Map)(?:<[^>]*>)?\\(\\[\\s*\\[?${SHAPE_NAME}|\\[${SHAPE_NAME}[^\\]]*\\]\\.(?:includes|indexOf)`;
  return new RegExp(`${compared}|${listed}`).test(text);
}

/** A shape that is compared with a name or switched over, or whose kind is an element or a key of a collection. */
const ASKS_SHAPE =
  /\bshape\s*[!=]==?\s*['"`]|['"`]\s*[!=]==?\s*[\w.#]*\bshape\b|\bswitch \([\w.#]*\bshape\)|\b(?:Set|Array|Map|Record)<(?:Shape\b|Operation\['shape'\])|\bShape\[\]|\bOperation\['shape'\]\[\]/;

describe('operations', () => {
  /** Where ids of operations may be listed: at home, and where a provider says what it serves. */
  const outside = product.filter(({ area }) => area !== 'operations' && area !== 'providers');
  const found = (pattern: RegExp) =>
    outside.flatMap(({ path, text }) => [...uncommented(text).matchAll(pattern)].map(([what]) => `${path}: ${what}`));

  it('decide by their properties: no id is compared, and no part of them is listed, outside operations/', () => {
    expect(
      found(/\boperation\??\.id\s*[!=]==?[^;\n]*|[!=]==?\s*[\w.]*\boperation\.id\b|switch \([\w.]*operation\.id\)/g),
    ).toEqual([]);
    const id = `(?:OperationId|OperationOf<[^>]*>|Operation\\['id'\\])`;
    expect(found(new RegExp(`\\b(?:Set|Array)<${id}>|\\b${id}\\[\\]|Partial<Record<${id}`, 'g'))).toEqual([]);
  });

  /** Where a word that also is the name of a wire shape says something else. */
  const NO_SHAPE: Readonly<Record<string, string>> = {
    'llm/guard/guardrail-invoker.ts': 'the form in which a trial is given',
    'llm/guard/texts/walk.ts': 'a mode of reading',
    'llm/request-body.ts': 'a family of operations',
    'providers/azure-ai/azure-ai.ts': 'operations of the provider, and one of its APIs',
    'providers/azure-openai/bindings.ts': 'operations of the provider',
    'providers/google/gemini-request.ts': 'a field',
    'providers/openai/openai.ts': 'operations of the provider',
    'providers/vertex-ai/batches.ts': 'an endpoint of the provider',
    'resources/common.ts': 'a word of paths',
    'training/datasets/formats.ts': 'a kind of rows',
    'training/datasets/rows.ts': 'a kind of rows',
    'training/datasets/tokens.ts': 'a kind of rows',
  };

  it('and by their shapes: no shape is asked its name, and no part of them is listed, outside operations/', () => {
    const elsewhere = product.filter(({ area }) => area !== 'operations');
    const named = elsewhere.filter(({ text }) => comparesShapeName(uncommented(text)));
    expect(named.map(({ path }) => path).sort()).toEqual(Object.keys(NO_SHAPE).sort());
    // In those files too, no shape is asked, whatever it is compared with.
    const asking = elsewhere.filter(({ text }) => ASKS_SHAPE.test(uncommented(text)));
    expect(asking.map(({ path }) => path)).toEqual([]);
  });

  it.each([
    "if (operation.shape === 'chat') return;",
    "const plain = made !== 'messages';",
    "return 'raw' === kind;",
    "switch (x) { case 'responses': return 1; }",
    "['speech', 'images'].includes(shape)",
    "const SENSES = new Set(['speech', 'images']);",
  ])('a name of a shape is found in %s', (text) => {
    expect(comparesShapeName(text)).toBe(true);
  });

  it.each([
    "if ('chat' !== operation.shape) return;",
    'switch (this.#x.request.operation.shape) {',
    "const SENSES = new Set<Operation['shape']>();",
    'const TALKS: Partial<Record<Shape, string>> = {};',
    'const others: readonly Shape[] = [];',
  ])('and a shape that is asked in %s', (text) => {
    expect(ASKS_SHAPE.test(text)).toBe(true);
  });

  it('a binding that says its shape asks none', () => {
    const text = "const binding = { shape: 'chat', path: '/chat' }; SHAPES[binding.shape].usage.read(raw);";
    expect([comparesShapeName(text), ASKS_SHAPE.test(text)]).toEqual([false, false]);
  });

  it('nor listed by their names alone', () => {
    const lists = found(/(?<!Shape\[\] = )\[\s*(?:'\w+',?\s*){2,}\]/g).filter((list) =>
      [...list.matchAll(/'(\w+)'/g)].every(([, name = '']) => Object.hasOwn(OPERATIONS, name)),
    );
    expect(lists).toEqual([]);
  });
});

describe('what a suite adds', () => {
  /** The tables to which one line is added; nothing else of the product is replaced. */
  const LINES: Readonly<Record<string, readonly string[]>> = {
    'added-check.test.ts': ['guardrails/checks/index.ts'],
    'added-operation.test.ts': ['operations/table.ts'],
    'added-shape.test.ts': ['operations/shapes/index.ts', 'operations/table.ts'],
    'provider-settings.test.ts': ['providers/catalog.ts'],
  };

  it('a provider, a check, an operation and a shape are added by a line of their own table alone', () => {
    const suites = walk(join(ROOT, 'server/test/additions')).map((file) => {
      const mocked = [...readFileSync(file, 'utf8').matchAll(/vi\.mock\('[./]*src\/([^']+)'/g)].map(([, path]) => path);
      return [relative(join(ROOT, 'server/test/additions'), file), mocked] as const;
    });
    expect(Object.fromEntries(suites)).toEqual(LINES);
  });

  it('and a resource by its declaration, which replaces nothing', () => {
    expect(readFileSync(join(SRC, 'resources/define.test.ts'), 'utf8')).not.toContain('vi.mock');
  });
});

describe('errors', () => {
  it('are told by the table of a dialect: nothing else writes the code or the type of one, and no thrower a status', () => {
    const rows = [...Object.values(OPENAI_ERRORS), ...Object.values(ANTHROPIC_ERRORS), ...Object.values(ADMIN_ERRORS)];
    const ofProviders = Object.values(IN_ITS_STEAD);
    const names = new Set([...rows, ...ofProviders].flatMap(({ type, code }) => [type, code ?? type]));
    // Kinds and reasons that a dialect calls by the same name.
    for (const name of [...ERROR_KINDS, ...ofProviders.flatMap(({ code }) => code ?? [])]) names.delete(name);
    // A status as a text, and a word of many meanings.
    for (const name of names) if (!name.includes('_')) names.delete(name);
    const written = new RegExp(`['"](?:${[...names].join('|')}|AB\\d\\d)['"]`, 'g');
    // The dialects are at home in operations; providers read and speak their own, and pass on what they read.
    const found = product
      .filter(
        ({ area, path }) =>
          area !== 'operations' && area !== 'providers' && path !== 'admin/errors.ts' && path !== 'oauth/errors.ts',
      )
      .flatMap(({ path, text }) => [...uncommented(text).matchAll(written)].map(([what]) => `${path} ${what}`));
    expect(found).toEqual([]);
    const statuses = product.filter(({ text }) => /new SluiceError\([^;]*\bstatus: \d/.test(uncommented(text)));
    expect(statuses.map(({ path }) => path)).toEqual([]);
  });
});
