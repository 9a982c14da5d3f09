/** Puts blobs of growing size under a file-size limit until one is refused, and prints what remained as JSON. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { systemTenant } from '../../../src/auth/tenant.ts';
import { SluiceError } from '../../../src/kernel/errors.ts';
import { openDiskBlobs } from '../../../src/store/disk/blobs.ts';

const dir = process.argv[2] ?? '';
const blobs = await openDiskBlobs({ dir });
const tenant = systemTenant('org-a');
const body = (bytes: number) => Readable.from([Buffer.alloc(bytes / 2, 'a'), Buffer.alloc(bytes / 2, 'b')]);
await blobs.put(tenant, 'small', body(10_000));
const refused = await blobs.put(tenant, 'large', body(2_000_000)).catch((error: unknown) => error);
const replaced = await blobs.put(tenant, 'small', body(2_000_000)).catch((error: unknown) => error);
await blobs.put(tenant, 'later', body(10_000));
const kind = (error: unknown) => (error instanceof SluiceError ? error.kind : String(error));
process.stdout.write(
  JSON.stringify({
    kinds: [kind(refused), kind(replaced)],
    large: await blobs.stat(tenant, 'large'),
    small: (await blobs.stat(tenant, 'small'))?.bytes,
    later: (await blobs.stat(tenant, 'later'))?.bytes,
    unfinished: await readdir(join(dir, 'unfinished')),
  }),
);
