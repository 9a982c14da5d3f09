/** Keys of the journals of bodies. */
import type { SegmentKey } from '../store/disk/body-journal.ts';
import type { Macs } from '../store/vault.ts';

const BODY_SEGMENTS = 'segments of bodies';

/** The key of a segment: a digest under a key of the vault, so no key is stored beside what it opens. */
export function segmentKey(macs: Macs, journal: string, segment: string): SegmentKey {
  const { keyId, digest } = macs.mac(BODY_SEGMENTS, Buffer.from(`${journal}/${segment}`));
  return { id: keyId, key: digest };
}

/** The same key for who reads the segment; null when the master key it comes from is gone. */
export function openSegmentKey(macs: Macs, journal: string, segment: string, keyId: string): Buffer | null {
  return macs.mac(BODY_SEGMENTS, Buffer.from(`${journal}/${segment}`), keyId)?.digest ?? null;
}
