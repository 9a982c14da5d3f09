/**
 * What a directory's sync costs the data plane: nothing is compiled again because of it.
 * Own process: it hears every statement that this process sends to its store.
 */
import { expect, it } from 'vitest';
import { hear } from '../growth/hear.ts';
import { type Directory, openDirectory, patch } from './world.ts';

/** Tables that snapshots of workspaces are compiled of. */
const COMPILED = / from "(?:configs|integrations|providers|virtual_keys|rate_policies|guardrails)"/;

async function call({ server }: Directory): Promise<number> {
  const answer = await fetch(`${server.url}/v1/chat/completions`, {
    method: 'POST',
    headers: { 'x-gateway-api-key': server.first.workspace_api_key, 'content-type': 'application/json' },
    body: JSON.stringify({ model: '@sandbox/echo', messages: [{ role: 'user', content: 'hi' }] }),
  });
  await answer.text();
  return answer.status;
}

it.each(['sqlite', 'postgres'] as const)(
  'a sync of 300 users and 10 groups of a mapped workspace compiles no snapshot again, on %s',
  async (engine) => {
    const directory = await openDirectory(engine);
    const { server } = directory;
    let compiled = 0;
    const deaf = hear(engine, ({ sql }) => {
      if (COMPILED.test(sql)) compiled += 1;
    });
    try {
      expect(await call(directory)).toBe(200);
      const first = compiled;
      expect(first, 'the first call compiles').toBeGreaterThan(0);
      const ids: string[] = [];
      for (let n = 0; n < 300; n++) {
        ids.push(await directory.user(`user${n}@example.com`, { externalId: `e${n}` }));
        if (n % 50 === 0) expect(await call(directory)).toBe(200);
      }
      for (let n = 0; n < 10; n++) {
        const scim_group_id = await directory.group(`Group ${n}`);
        const mapping = { workspace_id: server.first.workspace_id, role: 'member', scim_group_id };
        expect((await server.admin('POST', '/scim/workspaces', mapping)).status).toBe(200);
        const value = ids.slice(n * 30, n * 30 + 30).map((id) => ({ value: id }));
        const told = await directory.send(
          'PATCH',
          `/Groups/${scim_group_id}`,
          patch({ op: 'add', path: 'members', value }),
        );
        expect(told.status).toBe(204);
        expect(await call(directory)).toBe(200);
      }
      for (const id of ids.slice(0, 50)) {
        const away = patch({ op: 'replace', path: 'active', value: false });
        expect((await directory.send('PATCH', `/Users/${id}`, away)).status).toBe(200);
      }
      expect(await call(directory)).toBe(200);
      expect(compiled - first).toBe(0);
      const renamed = await server.admin('PUT', `/admin/workspaces/${server.first.workspace_id}`, { name: 'Renamed' });
      expect(renamed.status, JSON.stringify(renamed.body)).toBe(200);
      expect(await call(directory)).toBe(200);
      expect(compiled - first, 'the counter hears what does compile').toBeGreaterThan(0);
    } finally {
      deaf();
      await server.stop();
    }
  },
  120_000,
);
