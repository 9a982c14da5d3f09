/** Workspaces exempt from the organisation's default guardrails, on both stores. */
import fc from 'fast-check';
import { beforeEach, describe, expect, it } from 'vitest';
import { ok, onBothStores, refused, unique } from '../../../test/support/accounts.ts';
import { systemTenant } from '../../auth/tenant.ts';
import { systemClock } from '../../kernel/clock.ts';
import { uuidv7 } from '../../kernel/id.ts';
import { workspaceRow } from '../../store/conformance/rows.ts';

const INPUT = '/workspace-exclusions/input-guardrails';
const OUTPUT = '/workspace-exclusions/output-guardrails';
const NOBODY = '00000000-0000-7000-8000-00000000000b';

interface Listed {
  readonly workspaces: readonly { readonly workspace_slug: string }[];
}

onBothStores((on) => {
  const listed = async (path: string) => {
    const answer: Listed = ok(await on.get(path));
    return answer.workspaces.map((entry) => entry.workspace_slug).sort();
  };
  const put = async (body: unknown, path = INPUT) => ok(await on.put(path, body));
  const entries = (excluded: boolean, ...names: string[]) => names.map((workspace_id) => ({ workspace_id, excluded }));
  const add = async (status: 'active' | 'archived' = 'active') => {
    const row = workspaceRow(on.api.a.organisation_id, uuidv7(systemClock), { slug: unique('ws-more'), status });
    await on.api.tables.systemWrite((tx) => tx.insert('workspaces', row));
    return row;
  };

  beforeEach(async () => {
    for (const path of [INPUT, OUTPUT]) await put({ workspaces: [], override_existing: true }, path);
  });

  describe('exemptions from default guardrails', () => {
    it('are listed with id and slug', async () => {
      expect(ok(await on.get(INPUT))).toEqual({ object: 'list', total: 0, workspaces: [] });
      expect(await put({ workspaces: entries(true, 'ws-second') })).toEqual({});
      expect(ok(await on.get(`${INPUT}?organisation_id=${on.api.a.organisation_id}`))).toEqual({
        object: 'list',
        total: 1,
        workspaces: [{ workspace_id: on.second.id, workspace_slug: 'ws-second', excluded: true }],
      });
    });

    it('are given and ended entry by entry, by id or slug, and the others keep theirs', async () => {
      const first = on.api.a.workspace_slug;
      await put({ workspaces: entries(true, on.second.id) });
      await put({ workspaces: entries(true, first.toString()), override_existing: false });
      expect(await listed(INPUT)).toEqual(['ws-second', first].sort());
      await put({ workspaces: entries(true, 'ws-second') });
      expect(await listed(INPUT)).toEqual(['ws-second', first].sort());
      await put({ workspaces: entries(false, on.second.id.toUpperCase()) });
      expect(await listed(INPUT)).toEqual([first]);
      await put({ workspaces: entries(false, 'ws-second') });
      await put({ workspaces: [] });
      expect(await listed(INPUT)).toEqual([first]);
    });

    it('with override_existing become the entries that say excluded: true, and nothing else', async () => {
      const third = await add();
      await put({ workspaces: entries(true, 'ws-second', on.api.a.workspace_slug) });
      await put({
        override_existing: true,
        workspaces: [...entries(true, third.slug), ...entries(false, 'ws-second')],
      });
      expect(await listed(INPUT)).toEqual([third.slug]);
      await put({ override_existing: true, workspaces: [] });
      expect(await listed(INPUT)).toEqual([]);
    });

    it('of input and of output have nothing to do with each other', async () => {
      await put({ workspaces: entries(true, 'ws-second') }, OUTPUT);
      expect([await listed(INPUT), await listed(OUTPUT)]).toEqual([[], ['ws-second']]);
      await put({ workspaces: [], override_existing: true }, INPUT);
      expect(await listed(OUTPUT)).toEqual(['ws-second']);
      await put({ workspaces: entries(true, 'ws-second') }, INPUT);
      await put({ workspaces: entries(false, 'ws-second') }, INPUT);
      expect([await listed(INPUT), await listed(OUTPUT)]).toEqual([[], ['ws-second']]);
    });

    it.each<[string, unknown, string]>([
      [
        'an invented workspace',
        { workspaces: [{ workspace_id: 'ws-invented', excluded: true }] },
        'workspaces[0].workspace_id',
      ],
      [
        'an unknown one to be ended',
        { workspaces: [{ workspace_id: NOBODY, excluded: false }] },
        'workspaces[0].workspace_id',
      ],
      [
        'a good one before a bad one',
        {
          workspaces: [
            { workspace_id: 'ws-second', excluded: true },
            { workspace_id: 'nope', excluded: true },
          ],
        },
        'workspaces[1].workspace_id',
      ],
      [
        'one slug twice',
        {
          workspaces: [
            { workspace_id: 'ws-second', excluded: true },
            { workspace_id: 'ws-second', excluded: false },
          ],
        },
        'workspaces[1].workspace_id',
      ],
      ['no list', {}, 'workspaces'],
      ['a list of null', { workspaces: null }, 'workspaces'],
      ['a list of text', { workspaces: ['ws-second'] }, 'workspaces[0]'],
      ['an entry without workspace', { workspaces: [{ excluded: true }] }, 'workspaces[0].workspace_id'],
      ['an entry without excluded', { workspaces: [{ workspace_id: 'ws-second' }] }, 'workspaces[0].excluded'],
      ['excluded as text', { workspaces: [{ workspace_id: 'ws-second', excluded: 'true' }] }, 'workspaces[0].excluded'],
      ['excluded of null', { workspaces: [{ workspace_id: 'ws-second', excluded: null }] }, 'workspaces[0].excluded'],
      [
        'a name that cannot be one',
        { workspaces: [{ workspace_id: '%', excluded: true }] },
        'workspaces[0].workspace_id',
      ],
      [
        'an unknown key in an entry',
        { workspaces: [{ workspace_id: 'ws-second', excluded: true, why: '' }] },
        'workspaces[0].why',
      ],
      ['an unknown key', { workspaces: [], override: true }, 'override'],
      ['override_existing as text', { workspaces: [], override_existing: 'yes' }, 'override_existing'],
      ['a workspace_id of its own', { workspaces: [], workspace_id: 'ws-second' }, 'workspace_id'],
      [
        '1,001 entries',
        { workspaces: Array.from({ length: 1_001 }, () => ({ workspace_id: 'x', excluded: true })) },
        'workspaces',
      ],
    ])('%s is refused and nothing at all is written', async (_title, body, param) => {
      await put({ workspaces: entries(true, on.api.a.workspace_slug) });
      for (const given of [
        body,
        { ...(body as object), override_existing: (body as Record<string, unknown>).override_existing ?? true },
      ]) {
        refused(await on.put(INPUT, given), 400, 'AB01', param);
        expect(await listed(INPUT)).toEqual([on.api.a.workspace_slug]);
      }
    });

    it('the same workspace by id and by slug is named twice', async () => {
      const body = { workspaces: entries(true, 'ws-second', on.second.id) };
      refused(await on.put(INPUT, body), 400, 'AB01', 'workspaces[1].workspace_id');
    });

    it('a workspace of another organisation is as unknown as an invented one, and an archived one too', async () => {
      const archived = await add('archived');
      const names = [on.api.b.workspace_id, on.api.b.workspace_slug, NOBODY, 'ws-none', archived.id, archived.slug];
      const answers = await Promise.all(names.map((name) => on.put(INPUT, { workspaces: entries(true, name) })));
      const bodies = answers.map(({ status, body }) => JSON.stringify([status, body]));
      expect(new Set(bodies).size).toBe(1);
      refused(answers[0] as (typeof answers)[number], 400, 'AB01', 'workspaces[0].workspace_id');
    });

    it('another organisation is 403, and has a list of its own', async () => {
      const { organisation_id, workspace_id, admin_api_key } = on.api.b;
      refused(await on.get(`${INPUT}?organisation_id=${organisation_id}`), 403, 'AB03', 'organisation_id');
      refused(await on.put(INPUT, { organisation_id, workspaces: [] }), 403, 'AB03', 'organisation_id');
      ok(await on.put(INPUT, { workspaces: entries(true, workspace_id) }, admin_api_key));
      expect(await listed(INPUT)).toEqual([]);
      await put({ workspaces: [], override_existing: true });
      expect(ok(await on.get(INPUT, admin_api_key)).total).toBe(1);
    });

    it('are for organisation-service keys with the scope: a workspace key is 403', async () => {
      for (const path of [INPUT, OUTPUT]) {
        for (const answer of [await on.get(path, on.mine), await on.put(path, { workspaces: [] }, on.mine)]) {
          expect([answer.status, answer.body.error.code]).toEqual([403, 'AB03']);
        }
      }
    });

    it('are announced to every node, and audited with the list before and after', async () => {
      const from = await on.api.tables.lastChange();
      await put({ workspaces: entries(true, 'ws-second') }, OUTPUT);
      expect(await on.api.tables.changesAfter(from, 10)).toContainEqual(
        expect.objectContaining({ topic: 'guardrail_exclusions', workspaceId: null }),
      );
      const rows = await on.api.tables.read(systemTenant(on.api.a.organisation_id), (tx) =>
        tx.list('audit_log', { where: { resource_type: 'workspace exclusions' } }),
      );
      expect(rows.map(({ before, after }) => [before, after])).toContainEqual([
        '{"excluded_output":[]}',
        '{"excluded_output":["ws-second"]}',
      ]);
    });

    it('a slug that looks like the id of another workspace never stands for both', async () => {
      const twin = workspaceRow(on.api.a.organisation_id, uuidv7(systemClock), { slug: uuidv7(systemClock) });
      await on.api.tables.systemWrite((tx) => tx.insert('workspaces', twin));
      await put({ workspaces: entries(true, twin.slug) });
      expect(await listed(INPUT)).toEqual([twin.slug]);
    });

    it('whatever is merged in whatever order, the list is what a set would hold', async () => {
      const names = [on.api.a.workspace_slug, 'ws-second', (await add()).slug, (await add()).slug];
      const change = fc.record({
        override_existing: fc.boolean(),
        wanted: fc.dictionary(fc.constantFrom(...names), fc.boolean()),
      });
      await fc.assert(
        fc.asyncProperty(fc.array(change, { maxLength: 4 }), async (changes) => {
          await put({ workspaces: [], override_existing: true });
          let model = new Set<string>();
          for (const { override_existing, wanted } of changes) {
            const workspaces = Object.entries(wanted).map(([workspace_id, excluded]) => ({ workspace_id, excluded }));
            await put({ workspaces, override_existing });
            if (override_existing) model = new Set();
            for (const [name, excluded] of Object.entries(wanted)) {
              if (excluded) model.add(name);
              else model.delete(name);
            }
            expect(await listed(INPUT)).toEqual([...model].sort());
          }
        }),
        { numRuns: 15 },
      );
    });

    it('two writers at once: both stand or one is told, never a 500', async () => {
      for (let round = 0; round < 10; round++) {
        const excluded = round % 2 === 0;
        const answers = await Promise.all([
          on.put(INPUT, { workspaces: entries(excluded, 'ws-second') }),
          on.put(INPUT, { workspaces: entries(excluded, on.second.id, on.api.a.workspace_id) }),
        ]);
        for (const { status } of answers) expect([200, 409, 503]).toContain(status);
        if (answers[0]?.status === 200) expect((await listed(INPUT)).includes('ws-second')).toBe(excluded);
      }
    });
  });
});
