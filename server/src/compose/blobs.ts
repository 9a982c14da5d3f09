import { type Config, cloudVariable, readCloudFile } from '../config.ts';
import type { Clock } from '../kernel/clock.ts';
import type { Log } from '../kernel/log.ts';
import type { Blobs } from '../store/ports.ts';

/** Files and bodies of requests: in a bucket where one is set, else on the disk of the data directory. */
export async function openBlobs(config: Config, clock: Clock, log: Log): Promise<Blobs> {
  if (config.blobs === null) {
    const { openDiskBlobs } = await import('../store/disk/blobs.ts');
    return openDiskBlobs({ dir: config.dataDir, clock, reserveBytes: config.diskReserve });
  }
  const { operatorHttp } = await import('../http/operator-http.ts');
  const { openS3Blobs } = await import('../store/s3/blobs.ts');
  return openS3Blobs({
    ...config.blobs,
    variable: cloudVariable,
    file: readCloudFile,
    http: operatorHttp(),
    clock,
    log,
  });
}
