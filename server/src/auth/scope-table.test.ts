/**
 * Who holds which scope, written by hand and kept apart from `auth/scopes.ts`. The second half is a mutation
 * test of that file: it is loaded again with one entry taken away or added, for every entry there is, and each time the
 * comparison below must fail.
 */
import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { compileFunction } from 'node:vm';
import { describe, expect, it } from 'vitest';
import * as scopes from './scopes.ts';
import { SECURITY_DEFAULTS, SECURITY_KEYS, type SecuritySettings } from './security-settings.ts';

/** O, S, U: organisation-service, workspace-service, workspace-user keys. M, m: workspace managers and admins, members. */
type Holders = string;

/** Resource, then actions and who holds them where no security setting was changed. */
const TABLE: Readonly<Record<string, Readonly<Record<string, Holders>>>> = {
  organisation_users: { read: 'OMm', 'create update delete list': 'O' },
  organisation_service_api_keys: { 'create read update delete list rotate': 'O' },
  organisation_settings: { 'read update': 'O' },
  organisation_guardrails: { 'create read update delete list': 'O' },
  organisation_exclusions: { 'update list': 'O' },
  organisation_log_destinations: { 'create read update delete list': 'O' },
  audit_logs: { list: 'O' },
  plugins: { 'create update list': 'O' },
  deployments: { 'create read update delete list': 'O' },
  secret_references: { 'create read update delete list': 'O' },
  workspaces: { 'create delete': 'O', 'read list': 'OSUMm', update: 'OSUM' },
  workspace_service_api_keys: { 'create read update delete list rotate': 'OSM' },
  workspace_user_api_keys: { 'create read update delete list rotate': 'OSMm' },
  workspace_users: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  prompts: { 'read list': 'OSUMm', 'create update delete publish': 'OSUM', render: 'SUMm' },
  configs: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  guardrails: { 'read list': 'OSUMm', 'create update delete': 'OSUM', invoke: 'SUMm' },
  virtual_keys: { 'create read update delete list copy duplicate': 'OSUMm' },
  providers: { 'create read update delete list': 'OSUMm' },
  policies: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  organisation_integrations: { 'create read update delete': 'O', list: 'OSUMm' },
  organisation_mcp_integrations: { 'create read update delete': 'O', list: 'OSUMm' },
  organisation_agent_integrations: { 'create read update delete': 'O', list: 'OSUMm' },
  workspace_integrations: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  workspace_mcp_integrations: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  workspace_agent_integrations: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  agent_servers: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  mcp_servers: { 'read list': 'OSUMm', 'create update delete': 'OSUM' },
  analytics: { view: 'OSUMm' },
  logs: { 'list export view': 'OSUMm', write: 'SUMm' },
  log_destinations: { 'create read update delete list': 'OSM' },
  completions: { write: 'SUMm' },
  mcp: { invoke: 'SUMm' },
  agents: { invoke: 'SUMm' },
  agent_server_skills: { 'read list': 'OSUMm', update: 'OSUM' },
  agent_integration_skills: { 'read list': 'OSUMm', update: 'OSUM' },
  agent_server_user_access: { 'read list': 'OSUMm', update: 'OSUM' },
  models: { list: 'SUMm' },
  feedbacks: { 'read write': 'SUMm' },
};

/** Security setting, whom it concerns (a: organisation admins), and what depends on it. The others decide nothing here. */
const SWITCHES: Readonly<Record<string, readonly [Holders, string]>> = {
  membersViewLogs: ['m', 'logs.list logs.view logs.export'],
  managersViewLogs: ['M', 'logs.list logs.view logs.export'],
  organisationAdminsViewLogs: ['a', 'logs.list logs.view logs.export'],
  membersViewAnalytics: ['m', 'analytics.view'],
  managersViewAnalytics: ['M', 'analytics.view'],
  membersViewApiKeys: ['m', 'workspace_user_api_keys.read workspace_user_api_keys.list'],
  membersWriteApiKeys: [
    'm',
    'workspace_user_api_keys.create workspace_user_api_keys.update workspace_user_api_keys.delete workspace_user_api_keys.rotate',
  ],
  managersViewApiKeys: [
    'M',
    'workspace_user_api_keys.read workspace_user_api_keys.list workspace_service_api_keys.read workspace_service_api_keys.list',
  ],
  managersWriteApiKeys: [
    'M',
    'workspace_user_api_keys.create workspace_user_api_keys.update workspace_user_api_keys.delete workspace_user_api_keys.rotate ' +
      'workspace_service_api_keys.create workspace_service_api_keys.update workspace_service_api_keys.delete workspace_service_api_keys.rotate',
  ],
  membersViewConfigs: ['m', 'configs.read configs.list'],
  membersWriteConfigs: ['m', 'configs.create configs.update configs.delete'],
  managersViewConfigs: ['M', 'configs.read configs.list'],
  managersWriteConfigs: ['M', 'configs.create configs.update configs.delete'],
  membersViewPrompts: ['m', 'prompts.read prompts.list'],
  membersWritePrompts: ['m', 'prompts.create prompts.update prompts.delete prompts.publish'],
  managersViewPrompts: ['M', 'prompts.read prompts.list'],
  managersWritePrompts: ['M', 'prompts.create prompts.update prompts.delete prompts.publish'],
  membersViewGuardrails: ['m', 'guardrails.read guardrails.list'],
  membersWriteGuardrails: ['m', 'guardrails.create guardrails.update guardrails.delete'],
  managersViewGuardrails: ['M', 'guardrails.read guardrails.list'],
  managersWriteGuardrails: ['M', 'guardrails.create guardrails.update guardrails.delete'],
  membersViewVirtualKeys: ['m', 'virtual_keys.read virtual_keys.list providers.read providers.list'],
  membersWriteVirtualKeys: [
    'm',
    'virtual_keys.create virtual_keys.update virtual_keys.delete virtual_keys.copy virtual_keys.duplicate providers.create providers.update providers.delete',
  ],
  managersViewVirtualKeys: ['M', 'virtual_keys.read virtual_keys.list providers.read providers.list'],
  managersWriteVirtualKeys: [
    'M',
    'virtual_keys.create virtual_keys.update virtual_keys.delete virtual_keys.copy virtual_keys.duplicate providers.create providers.update providers.delete',
  ],
  managersWriteWsIntegrations: [
    'M',
    'workspace_integrations.create workspace_integrations.update workspace_integrations.delete',
  ],
  managersWriteWsMcpIntegrations: [
    'M',
    'workspace_mcp_integrations.create workspace_mcp_integrations.update workspace_mcp_integrations.delete',
  ],
  managersWriteMcpServers: ['M', 'mcp_servers.create mcp_servers.update mcp_servers.delete'],
  managersUpdateWs: ['M', 'workspaces.update'],
  managersWriteWsUsers: ['M', 'workspace_users.create workspace_users.update workspace_users.delete'],
};

function holding(who: string): Set<string> {
  const out = new Set<string>();
  for (const [resource, actions] of Object.entries(TABLE)) {
    for (const [names, holders] of Object.entries(actions)) {
      if (who === '' || holders.includes(who)) for (const action of names.split(' ')) out.add(`${resource}.${action}`);
    }
  }
  return out;
}

type Scopes = Pick<typeof scopes, 'SCOPES' | 'scopesOf' | 'roleScopes'>;

const ALL = holding('');
const BY_KEY = [
  ['organisation-service', holding('O')],
  ['workspace-service', holding('S')],
  ['workspace-user', holding('U')],
  ['user', ALL],
  ['operator', new Set<string>()],
] as const;

/** A role's scopes under settings that differ from the defaults in one switch. */
function expected(base: ReadonlySet<string>, whom: string, flipped: string | null): Set<string> {
  const out = new Set(base);
  const [concerned, depending] = SWITCHES[flipped ?? ''] ?? ['', ''];
  if (whom === '' || concerned !== whom) return out;
  for (const scope of depending.split(' ')) {
    if (SECURITY_DEFAULTS[flipped as keyof SecuritySettings]) out.delete(scope);
    else out.add(scope);
  }
  return out;
}

const ROLES = [
  ['owner', null, ALL, ''],
  ['owner', 'member', ALL, ''],
  ['admin', null, ALL, 'a'],
  ['admin', 'member', ALL, 'a'],
  ['member', null, new Set<string>(), ''],
  ['member', 'admin', holding('M'), ''],
  ['member', 'manager', holding('M'), 'M'],
  ['member', 'member', holding('m'), 'm'],
] as const;

const SETTINGS = [null, ...SECURITY_KEYS].map((flipped) => ({
  flipped,
  security: flipped === null ? SECURITY_DEFAULTS : { ...SECURITY_DEFAULTS, [flipped]: !SECURITY_DEFAULTS[flipped] },
  roles: ROLES.map(([role, inWorkspace, base, whom]) => [role, inWorkspace, expected(base, whom, flipped)] as const),
}));

const equal = (a: ReadonlySet<string>, b: ReadonlySet<string>) =>
  a.size === b.size && [...a].every((one) => b.has(one));

/** Where the code and the tables above part; the first place, or null. */
function difference(code: Scopes): string | null {
  if (!equal(code.SCOPES, ALL)) return 'all scopes';
  for (const [kind, held] of BY_KEY) if (!equal(code.scopesOf(kind), held)) return kind;
  for (const { flipped, security, roles } of SETTINGS) {
    for (const [role, inWorkspace, held] of roles) {
      if (!equal(code.roleScopes(role, inWorkspace, security), held)) return `${role} ${inWorkspace} ${flipped}`;
    }
  }
  return null;
}

describe('the scope table', () => {
  it('is the one written here, for key types, roles and each security setting', () => {
    for (const [kind, held] of BY_KEY) expect([...scopes.scopesOf(kind)].sort(), kind).toEqual([...held].sort());
    for (const { flipped, security, roles } of SETTINGS) {
      for (const [role, inWorkspace, held] of roles) {
        const name = `${role} ${inWorkspace} with ${flipped}`;
        expect([...scopes.roleScopes(role, inWorkspace, security)].sort(), name).toEqual([...held].sort());
      }
    }
    expect(difference(scopes)).toBe(null);
    expect(Object.keys(SWITCHES).filter((name) => !(SECURITY_KEYS as readonly string[]).includes(name))).toEqual([]);
  });

  it('is told apart from itself with any one entry taken away, added or turned around', () => {
    const mutants = mutantsOf(SOURCE);
    const survivors = mutants.filter(({ source }) => difference(load(source)) === null).map(({ name }) => name);
    expect(survivors).toEqual([]);
    expect(difference(load(SOURCE))).toBe(null);
    // 37 rows, 336 scopes of key types, 30 settings, what each takes away, and the roles' own lines.
    expect(mutants.filter(({ name }) => name.startsWith('without')).length).toBeGreaterThan(450);
    expect(mutants.length).toBeGreaterThan(1_500);
  }, 60_000);
});

const SOURCE = stripTypeScriptTypes(readFileSync(new URL('./scopes.ts', import.meta.url), 'utf8'));

/** The module of a source; it imports types only. */
function load(source: string): Scopes & { CATALOGUE: Row[]; RESTRICTIONS: Row[] } {
  const body = source.replaceAll(/^export /gm, '');
  return compileFunction(`${body}\nreturn { SCOPES, scopesOf, roleScopes, CATALOGUE, RESTRICTIONS };`)();
}

type Row = string[];
interface Mutant {
  readonly name: string;
  readonly source: string;
}

const ACTIONS = 'create read update delete list rotate publish render copy duplicate invoke view export write'.split(
  ' ',
);

function mutantsOf(source: string): Mutant[] {
  const { CATALOGUE, RESTRICTIONS } = load(source);
  return [
    ...mutantsOfTable(source, 'CATALOGUE', CATALOGUE, [1, 2, 3], ACTIONS),
    ...mutantsOfTable(source, 'RESTRICTIONS', RESTRICTIONS, [2], ['completions.write', 'workspaces.read']),
    ...turned(source, RESTRICTIONS),
    ...mutantsOfLines(source),
  ];
}

/** Each row away; in each cell of words each word away, and each other word added. */
function mutantsOfTable(source: string, name: string, rows: Row[], cells: number[], words: string[]): Mutant[] {
  const out: Mutant[] = [];
  const add = (what: string, changed: Row[]) => out.push({ name: what, source: withTable(source, name, changed) });
  for (const [at, row] of rows.entries()) {
    const replaced = (cell: number, value: string[]) => {
      const changed = [...row];
      changed[cell] = value.join(' ');
      return rows.map((one, index) => (index === at ? changed : one));
    };
    add(
      `without ${row.join(' | ')}`,
      rows.filter((one) => one !== row),
    );
    for (const cell of cells) {
      const held = (row[cell] ?? '').split(' ').filter((word) => word !== '');
      for (const word of held) {
        const left = held.filter((one) => one !== word);
        // What a role never holds cannot be taken from it.
        if (name === 'RESTRICTIONS' && row[1] === 'member' && !takes(row, word)) continue;
        add(`without ${word} in ${row[0]} ${cell}`, replaced(cell, left));
      }
      for (const word of words)
        if (!held.includes(word)) add(`${word} added to ${row[0]} ${cell}`, replaced(cell, [...held, word]));
    }
  }
  return out;
}

/** Whether the setting of a row decides about a scope, by the table written here. */
const takes = (row: Row, scope: string) => SWITCHES[row[0] ?? '']?.[1].split(' ').includes(scope) === true;

/** Each security setting for somebody else. */
function turned(source: string, rows: Row[]): Mutant[] {
  return rows.flatMap((row, at) =>
    ['member', 'manager', 'organisation admin']
      .filter((whom) => whom !== row[1])
      .map((whom) => ({
        name: `${row[0]} for ${whom}`,
        source: withTable(
          source,
          'RESTRICTIONS',
          rows.map((one, index) => (index === at ? [one[0] ?? '', whom, one[2] ?? ''] : one)),
        ),
      })),
  );
}

function withTable(source: string, name: string, rows: Row[]): string {
  const start = source.search(new RegExp(`^const ${name}\\b`, 'm'));
  const end = source.indexOf('\n];', start) + 3;
  return `${source.slice(0, start)}const ${name} = ${JSON.stringify(rows)};${source.slice(end)}`;
}

/** The sets of the roles and the function that chooses between them: each line away, each alternative of a pattern away. */
function mutantsOfLines(source: string): Mutant[] {
  const out: Mutant[] = [];
  for (const [from, to] of [
    ['const MEMBER', ']);'],
    ['export function roleScopes', '\n}'],
  ] as const) {
    const start = source.indexOf('\n', source.indexOf(from)) + 1;
    const block = source.slice(start, source.indexOf(to, start));
    const put = (name: string, changed: string) =>
      out.push({ name, source: source.slice(0, start) + changed + source.slice(start + block.length) });
    for (const line of block.split('\n')) {
      // The last line of a function is its answer when no other line gives one.
      if (/^ {2}(\.\.\.|'|if )/.test(line)) put(`without line ${line.trim()}`, block.replace(line, ''));
      const pattern = /\(([a-z_]+(?:\|[a-z_]+)+)\)/.exec(line);
      for (const word of pattern?.[1]?.split('|') ?? []) {
        const left = pattern?.[1]?.split('|').filter((one) => one !== word) ?? [];
        put(`without ${word} in ${line.trim()}`, block.replace(line, line.replace(pattern?.[1] ?? '', left.join('|'))));
      }
    }
  }
  for (const part of ['...WORKSPACE, ', ", 'organisation_users.read'"]) {
    const line = /const MANAGER[^\n]*/.exec(source)?.[0] ?? '';
    out.push({ name: `without ${part} in MANAGER`, source: source.replace(line, line.replace(part, '')) });
  }
  return out;
}
