/** What the journal of bodies in a data directory holds, opened with the installation's keys. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { openSegmentKey } from '../../src/compose/body-keys.ts';
import { BodyGroups } from '../../src/keeper/body-groups.ts';
import { loadKeyring } from '../../src/store/keyring.ts';
import { type BodyFrame, framesIn } from '../../src/telemetry/bodies/frame.ts';
import { filesBelow } from './files-below.ts';

export async function keptFrames(dataDir: string): Promise<BodyFrame[]> {
  const keyring = await loadKeyring({ masterKeyFile: join(dataDir, 'master.key'), create: false });
  const found: BodyFrame[] = [];
  const spool = join(dataDir, 'spool');
  for (const folder of (await readdir(spool)).filter((name) => /^bodies(?:-\d+)?$/.test(name)).sort()) {
    const groups = await BodyGroups.open(join(spool, folder), async (journal, segment, keyId) =>
      openSegmentKey(keyring, journal, segment, keyId),
    );
    for (;;) {
      const group = await groups?.next();
      if (group == null) break;
      found.push(...framesIn(group.bytes));
    }
  }
  return found;
}

/** Every file below a directory that has a text in it. */
export async function filesWith(dir: string, text: string): Promise<string[]> {
  return (await filesBelow(dir)).filter(({ bytes }) => bytes.includes(text)).map(({ path }) => path);
}
