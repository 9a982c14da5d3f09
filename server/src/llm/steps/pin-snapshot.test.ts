import { expect, it } from 'vitest';
import { callerWith, ORGANISATION, WORKSPACE, workspaceWith } from '../../../test/support/caller.ts';
import { testExchange } from '../../../test/support/exchange.ts';
import { pinSnapshot } from './pin-snapshot.ts';

/** A request, and a workspace that changes after each look at it. */
function changing(workspaceId: string | null, later: boolean) {
  const looks: string[] = [];
  const workspace = (organisation: string, id: string) => {
    looks.push(`${organisation} ${id}`);
    const snapshot = workspaceWith({ generation: looks.length });
    return later ? Promise.resolve(snapshot) : snapshot;
  };
  const x = testExchange({}, { runtime: { workspace } });
  x.request.principal = callerWith({ workspaceId });
  return { x, looks };
}

it.each([false, true])('the snapshot is pinned once, of the caller’s own workspace (later: %s)', async (later) => {
  const { x, looks } = changing(WORKSPACE, later);
  await pinSnapshot(x);
  const pinned = x.request.snapshot;
  expect([pinned?.generation, looks]).toEqual([1, [`${ORGANISATION} ${WORKSPACE}`]]);
});

it('a snapshot that is in memory makes nobody wait', () => {
  const { x } = changing(WORKSPACE, false);
  expect(pinSnapshot(x)).toBeUndefined();
  expect(x.request.snapshot).not.toBeNull();
});

it('no workspace is looked at for a caller that has none', () => {
  const { x, looks } = changing(null, false);
  pinSnapshot(x);
  expect([x.request.snapshot, looks]).toEqual([null, []]);
});
