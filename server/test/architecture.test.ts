/**
 * The house rules as a test: who may import whom, and what may be used only at home. The table here is the one in
 * the table of docs/architecture.md; a test compares the two.
 */
import { existsSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CHECKS } from '../src/guardrails/checks/index.ts';
import { PROVIDERS } from '../src/providers/catalog.ts';
import { UNSERVED } from '../src/providers/unserved.ts';
import {
  areaOf,
  code,
  product,
  ROOT,
  type Source,
  sources,
  suites,
  uncommented,
  users,
  walk,
} from './support/sources.ts';

/** Area → areas it may import, besides itself. `store` means the ports: store/{ports,schema,column,limit-types,alert-tables,feedback-table,guardrail-tables,log-tables,secret-reference-table,sign-in-tables,training-tables,vault}.ts. */
const MAY_IMPORT: Readonly<Record<string, readonly string[]>> = {
  kernel: [],
  http: ['kernel'],
  operations: ['kernel'],
  store: ['kernel'],
  adapters: ['kernel', 'store'],
  providers: ['kernel', 'operations'],
  guardrails: ['kernel', 'operations'],
  pricing: ['kernel', 'operations'],
  auth: ['kernel', 'store', 'operations', 'pricing'],
  limits: ['kernel', 'store', 'operations', 'pricing'],
  telemetry: ['kernel', 'store', 'operations', 'pricing'],
  resources: ['kernel', 'store', 'operations', 'pricing', 'auth', 'providers', 'guardrails', 'limits', 'telemetry'],
  runtime: [
    'kernel',
    'store',
    'auth',
    'resources',
    'limits',
    'telemetry',
    'operations',
    'providers',
    'guardrails',
    'pricing',
  ],
  secrets: ['kernel', 'http', 'store', 'operations', 'providers', 'resources'],
  oidc: ['kernel', 'store', 'auth', 'resources'],
  admin: ['kernel', 'http', 'store', 'auth', 'resources', 'limits', 'telemetry'],
  oauth: ['kernel', 'http', 'store', 'auth', 'resources', 'admin'],
  scim: ['kernel', 'http', 'store', 'auth', 'resources', 'admin'],
  keeper: ['kernel', 'store', 'telemetry'],
  exporter: ['kernel', 'http', 'store', 'telemetry', 'keeper'],
  mail: ['kernel'],
  jobs: ['kernel', 'store', 'auth', 'resources', 'limits', 'telemetry', 'mail'],
  gateway: [
    'kernel',
    'http',
    'auth',
    'operations',
    'providers',
    'guardrails',
    'limits',
    'pricing',
    'telemetry',
    'runtime',
    'store',
  ],
  training: [
    'kernel',
    'http',
    'auth',
    'operations',
    'providers',
    'limits',
    'pricing',
    'telemetry',
    'runtime',
    'store',
    'gateway',
  ],
  llm: [
    'kernel',
    'http',
    'auth',
    'operations',
    'providers',
    'guardrails',
    'limits',
    'pricing',
    'telemetry',
    'runtime',
    'resources',
    'store',
    'gateway',
  ],
};
/** What of the journal the processes that read it share with those that write it: the form of a line, and calls of the file system. */
const READERS_FROM_ADAPTERS = ['store/disk/files.ts', 'store/disk/journal-line.ts'];
const readsJournals = ({ area }: Pick<Source, 'area'>) => area === 'keeper' || area === 'exporter';
const TOP = new Set(['main', 'compose', 'first-run', 'cli', 'config', 'settings']);
/** What resources are to the data plane: the config language, which is data. */
const LLM_FROM_RESOURCES = ['resources/configs/schema.ts'];
/** What in resources and administration reaches further than one tenant, and why. */
const BEYOND_TENANTS: Readonly<Record<string, string>> = {
  'admin/audit.ts systemWrite': 'a refusal of the operator, who is nobody’s tenant',
  'admin/handle.ts SystemTx': 'the transaction of the operator’s actions',
  'admin/handle.ts systemRead': 'reads of the operator’s actions, and where the operator’s idempotency keys are kept',
  'admin/handle.ts systemWrite': 'writes of the operator’s actions',
  'admin/idempotency.ts systemWrite': 'the job that removes what has expired',
  'admin/invitations.ts systemRead': 'whoever opens an invitation has its token and no organisation yet',
  'admin/mailed-links.ts systemRead': 'who has an address, in every organisation, for links that go to that address',
  'admin/sign-in/provider-routes.ts systemRead': 'the public keys of a client, for a provider that knows its id',
  'admin/sign-in/sso.ts systemRead': 'whose the domain of an address is, before anybody is signed in',
  'resources/admin/invites/accept.ts SystemTx': 'the invite of a token, whose organisation is its answer',
  'resources/audit-logs/retention.ts SystemTx': 'the job that removes audit rows after their days, and its anchors',
  'resources/audit-logs/retention.ts systemWrite': 'the same',
  'resources/audit-logs/verify.ts systemRead': 'the command that checks the chains of all organisations',
  'resources/organisations.ts SystemTx': 'first run and operator: an organisation is made',
  'resources/settings/domains.ts SystemTx': 'the operator’s word that a domain is an organisation’s',
  'resources/seal-stored.ts SystemTx': 'the start: what an older version stored in clear, of all organisations',
  'resources/seal-stored.ts systemRead': 'the same',
  'resources/seal-stored.ts systemWrite': 'the same',
  'resources/resource.ts SystemTx': 'the type of the operator’s actions',
};
/** Areas of which the tree on the page names every file; of the others it names the folders. */
const NAMED_WHOLE = [
  'compose',
  'cli',
  'kernel',
  'http',
  'guardrails',
  'limits',
  'telemetry',
  'runtime',
  'jobs',
  'gateway',
];

describe('the tree on the page', () => {
  const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
  const tree = /^```\n(server\/bin.*?)^```$/ms.exec(page)?.[1] ?? '';
  const entries = new Map(
    [...tree.matchAll(/^ {2}(\S+)\/ (?:.*\n)(?: {4}.*\n)*/gm)].map(([text, name = '']) => [name, text] as const),
  );

  it.each(NAMED_WHOLE)('names every file of %s', (area) => {
    const words = new Set((entries.get(area) ?? '').match(/[a-z0-9-]+/g));
    const files = product.filter(({ path }) => path.split('/').length === 2 && path.startsWith(`${area}/`));
    expect(files.length).toBeGreaterThan(0);
    expect(
      files.map(({ path }) => path.slice(area.length + 1, -3)).filter((name) => !words.has(name)),
      'each file of this area needs its word in docs/architecture.md',
    ).toEqual([]);
  });

  it('names every area and every folder of the data plane', () => {
    const areas = new Set(
      sources.map(({ path }) => path.split('/')).flatMap((p) => (p.length > 1 ? [p[0] ?? ''] : [])),
    );
    expect([...areas].filter((area) => !entries.has(area))).toEqual([]);
    const folders = new Set(
      sources.map(({ path }) => path.split('/')).flatMap((p) => (p[0] === 'llm' && p.length > 2 ? [p[1] ?? ''] : [])),
    );
    expect([...folders].filter((folder) => !entries.get('llm')?.includes(`${folder}/`))).toEqual([]);
  });

  it('the files that the page names exist', () => {
    const named = [...page.matchAll(/`((?:[a-z0-9-]+\/)+[a-z0-9.-]+\.ts)`/g)].map(([, path = '']) => path);
    expect(named.length).toBeGreaterThan(30);
    const known = (path: string) =>
      ['server/src', 'server', 'server/test', 'server/src/llm', '.'].some((base) => existsSync(join(ROOT, base, path)));
    expect(named.filter((path) => !known(path))).toEqual([]);
  });
});

describe('imports point downward', () => {
  it('every area may import only what the table allows', () => {
    const wrong: string[] = [];
    for (const source of product) {
      if (TOP.has(source.area)) continue;
      const allowed = MAY_IMPORT[source.area];
      if (allowed === undefined) {
        wrong.push(`${source.path}: the area ${source.area} is not in the table`);
        continue;
      }
      for (const { target } of source.imports) {
        if (!target.endsWith('.ts') || target.startsWith('..')) continue;
        const area = areaOf(target);
        if (readsJournals(source) && READERS_FROM_ADAPTERS.includes(target)) continue;
        if (area !== source.area && !allowed.includes(area)) wrong.push(`${source.path} imports ${target}`);
        if (source.area === 'llm' && area === 'resources' && !LLM_FROM_RESOURCES.includes(target))
          wrong.push(`${source.path} imports ${target}`);
      }
    }
    expect(wrong).toEqual([]);
  });

  it('only the composition root and the command line name concrete stores', () => {
    const wrong = product.filter(
      (source) =>
        !TOP.has(source.area) &&
        source.area !== 'adapters' &&
        source.imports.some(
          ({ target }) =>
            areaOf(target) === 'adapters' &&
            target.startsWith('store/') &&
            !(readsJournals(source) && READERS_FROM_ADAPTERS.includes(target)),
        ),
    );
    expect(wrong.map((source) => source.path)).toEqual([]);
  });

  it('only auth makes a tenant context', () => {
    const wrong = product.filter(
      (source) => /\bunsafeTenant\b/.test(source.text) && !['auth/tenant.ts', 'store/ports.ts'].includes(source.path),
    );
    expect(wrong.map((source) => source.path)).toEqual([]);
  });

  it('a request asks for the snapshot of its workspace in one place, once', () => {
    const asks = product.flatMap(({ path, area, text }) =>
      area === 'llm' || area === 'gateway'
        ? (code(text).match(/\bruntime\b[^;\n]*\.workspace\(/g) ?? []).map(() => path)
        : [],
    );
    expect(asks).toEqual(['gateway/pin-snapshot.ts']);
  });

  it('resources and administration read and write as their caller, except where it is written down here', () => {
    const beyond = product
      .filter(({ area }) => area === 'resources' || area === 'admin')
      .flatMap(({ path, text }) =>
        [...new Set(code(text).match(/\b(?:systemRead|systemWrite|SystemTx)\b/g))].map((word) => `${path} ${word}`),
      );
    const unknown = beyond.filter((use) => !Object.hasOwn(BEYOND_TENANTS, use));
    expect(unknown).toEqual([]);
    expect(Object.keys(BEYOND_TENANTS).filter((use) => !beyond.includes(use))).toEqual([]);
  });

  it('only http opens sockets or resolves names, and only the store adapters reach their own servers', () => {
    const network = new Set([
      'undici',
      'node:http',
      'node:https',
      'node:net',
      'node:tls',
      'node:dns',
      'node:dns/promises',
      'node:http2',
      'node:dgram',
    ]);
    const wrong: string[] = [];
    for (const source of product) {
      if (source.area === 'http') continue;
      for (const { target, typeOnly } of source.imports)
        if (network.has(target) && !typeOnly) wrong.push(`${source.path} imports ${target}`);
    }
    expect(wrong).toEqual([]);
  });

  it('no process is started from product code but the log keeper and that of telemetry', () => {
    const wrong = product.filter((source) => source.imports.some(({ target }) => target === 'node:child_process'));
    expect(wrong.map((source) => source.path)).toEqual(['exporter/exporter.ts', 'keeper/keeper-launcher.ts']);
  });

  it('modules of Node.js are named with their prefix, so that a rule about one has one name to look for', () => {
    const bare = new Set(builtinModules.filter((name) => !name.startsWith('node:')));
    const wrong = sources.flatMap((source) =>
      source.imports.filter(({ target }) => bare.has(target)).map(({ target }) => `${source.path} imports ${target}`),
    );
    expect(wrong).toEqual([]);
  });

  it('docs/architecture.md shows the same table', () => {
    const page = readFileSync(join(ROOT, 'docs/architecture.md'), 'utf8');
    const [, table = ''] = /\| Area \| May import \|\n\|[-|]+\|\n((?:\|.*\|\n)+)/.exec(page) ?? [];
    const rows = Object.entries(MAY_IMPORT).map(
      ([area, allowed]) => `| ${area} | ${allowed.length === 0 ? '–' : allowed.join(', ')} |`,
    );
    expect(table.trim().split('\n')).toEqual(rows);
  });
});

/** Groups of files that import each other in a circle, each sorted. */
function circles(edges: ReadonlyMap<string, readonly string[]>): string[][] {
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const open: string[] = [];
  const out: string[][] = [];
  const visit = (file: string): number => {
    const at = order.size;
    order.set(file, at);
    let least = at;
    open.push(file);
    for (const next of edges.get(file) ?? []) {
      if (!edges.has(next)) continue;
      if (!order.has(next)) least = Math.min(least, visit(next));
      else if (open.includes(next)) least = Math.min(least, order.get(next) ?? least);
    }
    low.set(file, least);
    if (least === at) {
      const group = open.splice(open.indexOf(file));
      if (group.length > 1) out.push(group.sort());
    }
    return least;
  };
  for (const file of edges.keys()) if (!order.has(file)) visit(file);
  return out.sort();
}

describe('no file imports itself by way of others', () => {
  const edges = (withTypes: boolean) =>
    new Map(
      product.map(({ path, imports }) => [
        path,
        imports.filter(({ typeOnly }) => withTypes || !typeOnly).map(({ target }) => target),
      ]),
    );

  it('at run time', () => {
    expect(circles(edges(false))).toEqual([]);
  });

  it('nor by types', () => {
    expect(circles(edges(true))).toEqual([]);
  });

  it('a circle of three files is found', () => {
    const three = { a: ['b'], b: ['c'], c: ['a', 'd'], d: [] };
    expect(circles(new Map(Object.entries(three)))).toEqual([['a', 'b', 'c']]);
  });
});

describe('the composition root', () => {
  it('makes each part after what it needs: nothing is filled in later', () => {
    const parts = product.filter(({ area }) => area === 'compose');
    expect(parts.length).toBeGreaterThan(5);
    expect(parts.filter(({ text }) => /\blet\b/.test(code(text))).map(({ path }) => path)).toEqual([]);
  });

  it('has no function of more than 80 lines', () => {
    const long = product
      .filter(({ area }) => area === 'compose')
      .flatMap(({ path, text }) =>
        [...text.matchAll(/^(?:export )?(?:async )?function (\w+)[\s\S]*?^}/gm)]
          .filter(([body]) => body.split('\n').length > 80)
          .map(([, name = '']) => `${path} ${name}`),
      );
    expect(long).toEqual([]);
  });
});

describe('what is used only at home', () => {
  it('time comes from kernel/clock.ts', () => {
    expect(users(/\bDate\.now\b|\bnew Date\(\s*\)|\bperformance\.now\b/, ['kernel/clock.ts'])).toEqual([]);
  });
  it('timers come from kernel/clock.ts', () => {
    expect(
      users(/\bsetTimeout\(|\bsetInterval\(/, [
        'kernel/clock.ts',
        'cli/workers.ts',
        'store/redis',
        'store/postgres',
        'store/sqlite',
      ]),
    ).toEqual([]);
  });
  it('who a client is says http/client-address.ts, which knows the proxies in between', () => {
    // What we connected to ourselves is no client.
    expect(users(/\bremoteAddress\b|\brequest\.ips?\b/, ['http/client-address.ts', 'http/connect.ts'])).toEqual([]);
    // Who counts by address counts all of an IPv6 /64 as one (`networkOf`): Throttle, LimitedMails and the cap of connections do.
    expect(
      users(/\b(?:clientAddress|peerAddress)\(/, [
        'http/client-address.ts',
        'http/headers.ts',
        'http/server-options.ts',
        'admin/audit.ts',
        'admin/console-actions.ts',
        'admin/handle.ts',
        'admin/invitations.ts',
        'admin/sign-in/provider-routes.ts',
        'admin/mailed-links.ts',
        'admin/metrics.ts',
        'admin/sign-in.ts',
        'gateway/client-facts.ts',
        'gateway/non-model-call.ts',
        'llm/steps/authenticate.ts',
        'oauth/server.ts',
        'scim/serve.ts',
      ]),
    ).toEqual([]);
    expect(users(/\bclient:\$\{(?!networkOf)/, [])).toEqual([]);
    expect(users(/'x-forwarded-for'/, ['http/client-address.ts', 'http/headers.ts', 'admin/redact.ts'])).toEqual([]);
  });
  it('files that Sluice keeps are added and removed by training/managed/file-rows.ts, which counts their bytes', () => {
    // A workspace that is deleted takes its files and their count along.
    const homes = ['training/managed/file-rows.ts', 'resources/admin/workspaces/remove.ts'];
    const of = (pattern: RegExp) =>
      product
        .filter(({ path, text }) => !homes.includes(path) && pattern.test(uncommented(text)))
        .map(({ path }) => path);
    expect(of(/\.(?:insert|remove)\(\s*'files'/)).toEqual([]);
    expect(of(/\.update\(\s*'files'[^;]*\bbytes\b/)).toEqual([]);
    expect(of(/\.\w+\(\s*'file_totals'/)).toEqual([]);
    // Who reads them or notes their status; anything else asks these.
    expect(of(/\.(?:find|list|count|update)\(\s*'files'/)).toEqual([
      'compose/jobs.ts',
      'resources/batches/index.ts',
      'training/managed/batches.ts',
      'training/managed/files.ts',
      'training/managed/job-dataset.ts',
      'training/managed/job-uploads.ts',
    ]);
  });
  it('randomness is cryptographic', () => {
    expect(users(/\bMath\.random\b/, [])).toEqual([]);
  });
  it('the environment is read by config.ts', () => {
    // Members by computed name and the object under another name would hide the word that is looked for.
    expect(users(/\bprocess\s*\??\.\s*env\b|\bprocess\s*(?:\?\.)?\[|=\s*process\b(?!\s*\??\.)/, ['config.ts'])).toEqual(
      [],
    );
    const wrong = product.filter((source) => source.imports.some(({ target }) => target === 'node:process'));
    expect(wrong.map((source) => source.path)).toEqual([]);
  });
  it('global fetch is used nowhere', () => {
    expect(users(/(?<![.\w])fetch\b(?!\s*[:?])/, [])).toEqual([]);
  });
  it('no global is reached through the global object', () => {
    expect(users(/\bglobalThis\b|(?<![.\w])global\s*(?:\?\.)?[.[]/, [])).toEqual([]);
  });
  it('nothing prints to the console', () => {
    expect(users(/\bconsole\.\w+\(/, [])).toEqual([]);
  });
  it('user-written patterns never reach RegExp', () => {
    expect(users(/\bnew RegExp\(|(?<![.\w])RegExp\(/, [])).toEqual([]);
  });
});

describe('what files give to others', () => {
  /** Made for parts of the product that do not exist yet, and tested; or looked at by tests and development scripts alone. */
  const FOR_TESTS: readonly string[] = [
    'admin/console.ts CONSOLE_ROUTES',
    'admin/docs.ts DOCS_ROUTES',
    'admin/openapi.ts consoleDocument',
    'gateway/non-model-call.ts runCall',
    'gateway/tool-call.ts callTool',
    'http/buffer-pool.ts idleBufferBytes',
    'kernel/clock.ts TestClock',
    'oauth/routes.ts OAUTH_ROUTES',
    'operations/tokens.ts countTokensSync',
    'store/memory/feed.ts memoryFeed',
    'training/datasets/index.ts countDataset',
  ];

  it('is used by another file, and not by tests alone', () => {
    const others = [...['server/test', 'bench'].flatMap((dir) => walk(join(ROOT, dir)))].map((file) => ({
      path: relative(ROOT, file),
      text: readFileSync(file, 'utf8'),
    }));
    const wordsOf = (text: string) => code(text).match(/\w+/g) ?? [];
    const count = (files: readonly { readonly text: string }[]) => {
      const found = new Map<string, number>();
      for (const { text } of files)
        for (const word of new Set(wordsOf(text))) found.set(word, (found.get(word) ?? 0) + 1);
      return found;
    };
    const [inProduct, anywhere] = [count(product), count([...sources, ...others])];
    const unused: string[] = [];
    const forTests: string[] = [];
    for (const { path, text } of product) {
      if (path === 'main.ts' || /testing\.ts$/.test(path)) continue;
      const own = wordsOf(text);
      for (const [, name = ''] of text.matchAll(/^export (?:async )?(?:function\*?|const|class) (\w+)/gm)) {
        if (anywhere.get(name) === 1) unused.push(`${path} ${name}`);
        else if (inProduct.get(name) === 1 && own.filter((word) => word === name).length === 1)
          forTests.push(`${path} ${name}`);
      }
    }
    expect(unused, 'these need no `export`, or nobody needs them').toEqual([]);
    expect(forTests.sort()).toEqual(FOR_TESTS);
  });
});

describe('readable files', () => {
  /** No tests themselves, and each one table or one script. */
  const LONG: Readonly<Record<string, string>> = {
    'server/test/matrix/world.ts': 'an object of each kind with its bodies, which the matrices read together',
    'server/test/slow/races.ts': 'a script whose races share one server and its rules',
  };

  it('no file is longer than 600 lines, tests included', () => {
    const long = [...sources, ...suites].filter(({ text }) => text.split('\n').length > 600).map(({ path }) => path);
    expect(long.sort()).toEqual(Object.keys(LONG));
  });
  it('no default exports', () => {
    expect(users(/^export default\b/m, [])).toEqual([]);
  });
  /** Where a word that also is the id of a provider says something else, or names it for good reason. */
  const NO_PROVIDER: Readonly<Record<string, string>> = {
    'guardrails/checks/hosted/bedrock.ts': 'the service that judges, as its signature names it',
    'kernel/sigv4.ts': 'the service in a signature',
    'operations/convert/stream-chat-to-messages.ts': 'a shape of streams',
    'operations/convert/stream-messages-to-chat.ts': 'a shape of streams',
    'operations/convert/stream-responses-to-chat.ts': 'a shape of streams',
    'operations/dialects/dialect.ts': 'shapes of errors',
    'operations/dialects/errors.ts': 'shapes of errors',
    'operations/dialects/provider-error.ts': 'shapes of errors',
    'operations/dialects/stream.ts': 'shapes of streams',
    'operations/table.ts': 'shapes of bodies',
    'operations/shapes/messages/index.ts': 'shapes of bodies',
    'operations/shapes/wire-shape.ts': 'shapes of bodies',
    'operations/training.ts': 'a format of data sets',
    'pricing/library.ts': 'the names that the price library has for providers',
    'pricing/local.ts': 'prices of the sandbox, which no library has',
    'resources/configs/structure.ts': 'an example in a message',
    'resources/logs/insert.ts': 'an example in the reference',
    'resources/organisations.ts': 'the provider that a new organisation is given',
    'resources/body-fields.ts': 'an example in a message',
    'telemetry/conventions/v1-41.ts': 'the names that the conventions have for providers',
    'training/datasets/formats.ts': 'a format of data sets',
    'training/sandbox/dataset.ts': 'a format of data sets',
    'training/sandbox/jobs.ts': 'a format of data sets',
    'training/sandbox/objects.ts': 'the mark of what the sandbox has made',
    'training/sandbox/run.ts': 'the mark of what the sandbox has made',
  };

  it('shared code never asks a provider its name', () => {
    const ids = [...PROVIDERS.keys(), ...UNSERVED.map(({ id }) => id)].join('|');
    // Compared, in a set or a list, as a case, or as the key of a record.
    const names = new RegExp(`(['"])(?:${ids})\\1|(?<![\\w.?-])(?:${ids})\\s*:(?!:)`);
    const found = product.filter(
      ({ path, area, text }) => area !== 'providers' && !/testing\.ts$/.test(path) && names.test(uncommented(text)),
    );
    expect(found.map(({ path }) => path).sort()).toEqual(Object.keys(NO_PROVIDER).sort());
    // In those files too, nothing depends on which provider it is.
    const asks = /\bprovider(?:Id|\.id)\s*[!=]==?\s*['"]|\bswitch\s*\(\s*(?:\w+\.)*provider(?:Id|\.id)?\s*\)/;
    expect(product.filter(({ area, text }) => area !== 'providers' && asks.test(code(text)))).toEqual([]);
  });
  it('what is odd about a check is a trait of the check, not its name elsewhere', () => {
    const names = new RegExp(`['"](?:${[...CHECKS.keys()].join('|').replaceAll('.', '\\.')})['"]`);
    const found = product.filter(
      ({ path, text }) => !path.startsWith('guardrails/checks/') && names.test(uncommented(text)),
    );
    // An example in the reference.
    expect(found.map(({ path }) => path)).toEqual(['resources/guardrails/index.ts']);
  });
});
