/**
 * A directory that syncs an organisation for the first time: `npm run test:scim -- [--users 10000] [--groups 500] [--seconds 300]`.
 * All users, then all groups with 20 users each, one of them with 1,000 in one PATCH. No snapshot of a workspace is compiled
 * meanwhile, and the whole takes less than five minutes. It prints what each part took.
 */
import { parseArgs } from 'node:util';
import { hear } from '../growth/hear.ts';
import { openDirectory, patch } from '../scim/world.ts';
import { watchdog } from '../support/watchdog.ts';

const { values } = parseArgs({
  options: {
    users: { type: 'string', default: '10000' },
    groups: { type: 'string', default: '500' },
    seconds: { type: 'string', default: '300' },
  },
});
const [users, groups, seconds] = [Number(values.users), Number(values.groups), Number(values.seconds)];
/** Requests of one token in a minute stay below its limit. */
const TOKENS = 10;
const AT_ONCE = 8;

const watch = watchdog('scim');
watch.phase('start', 120_000);
const directory = await openDirectory('sqlite');
const { server } = directory;
const tokens = [directory.token];
for (let n = 1; n < TOKENS; n++) {
  const { body } = await server.admin('POST', '/scim/tokens', { name: `directory ${n}` });
  tokens.push(String(body.token));
}

/** Runs work in a few lines, each with the token of its turn. */
async function inLines<T>(count: number, work: (n: number, token: string) => Promise<T>): Promise<T[]> {
  const out: T[] = [];
  let next = 0;
  const line = async () => {
    for (let n = next++; n < count; n = next++) out[n] = await work(n, tokens[n % TOKENS] ?? '');
  };
  await Promise.all(Array.from({ length: AT_ONCE }, line));
  return out;
}

const began = performance.now();
const took = (since: number) => ((performance.now() - since) / 1_000).toFixed(1);
/** Statements that read what snapshots of workspaces are compiled of. */
let compiled = 0;
const deaf = hear('sqlite', ({ sql }) => {
  if (/ from "(?:configs|integrations|providers|virtual_keys|rate_policies)"/.test(sql)) compiled += 1;
});

watch.phase('users', seconds * 2_000);
const ids = await inLines(users, async (n, token) => {
  const body = {
    userName: `user${n}@example.com`,
    externalId: `ext-${n}`,
    active: true,
    name: { givenName: 'User', familyName: String(n) },
    emails: [{ value: `user${n}@example.com`, type: 'work', primary: true }],
  };
  const { status, body: made, text } = await directory.send('POST', '/Users', body, { token });
  if (status !== 201) throw new Error(`user ${n}: ${text}`);
  return String(made.id);
});
process.stdout.write(`${users} users in ${took(began)} s\n`);

watch.phase('groups', seconds * 2_000);
const groupsBegan = performance.now();
await inLines(groups, async (n, token) => {
  const { body, text } = await directory.send('POST', '/Groups', { displayName: `Group ${n}` }, { token });
  const members = Array.from({ length: n === 0 ? 1_000 : 20 }, (_none, m) => ({
    value: ids[(n * 7 + m) % ids.length],
  }));
  const told = await directory.send(
    'PATCH',
    `/Groups/${body.id}`,
    patch({ op: 'add', path: 'members', value: members }),
    { token },
  );
  if (told.status !== 204) throw new Error(`group ${n}: ${text} ${told.text}`);
});
process.stdout.write(`${groups} groups in ${took(groupsBegan)} s\n`);

watch.phase('check', 60_000);
const total = (await directory.send('GET', '/Users?count=0')).body.totalResults;
deaf();
const whole = (performance.now() - began) / 1_000;
const ok = whole < seconds && total === users + 1 && compiled === 0;
process.stdout.write(
  `${ok ? 'ok  ' : 'FAIL'} ${total - 1} users and ${groups} groups in ${whole.toFixed(1)} s, reads for snapshots: ${compiled}\n`,
);
await server.stop();
process.exit(ok ? 0 : 1);
