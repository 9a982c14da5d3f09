import { type Authenticator, createAuthenticator } from '../auth/authenticator.ts';
import { ConsoleSessions } from '../auth/console-session.ts';
import type { EgressGuard } from '../http/egress-guard.ts';
import type { SecretManagers } from '../resources/secret-references/manager.ts';
import { createRuntime, type Runtime } from '../runtime/runtime.ts';
import { startWatch, type Watch } from '../runtime/watch.ts';
import type { Change } from '../store/ports.ts';
import type { Common } from './common.ts';
import type { Front } from './front.ts';
import type { Shared } from './shared.ts';
import type { Stores } from './stores.ts';

/** What is kept of the store in memory, and the feed by which it stays true. */
export interface Kept {
  readonly authenticator: Authenticator;
  readonly runtime: Runtime;
  readonly sessions: ConsoleSessions;
  readonly watch: Watch;
  /** Calls `follower` with each change, and with null where changes may have been missed. */
  follow(follower: (change: Change | null) => void): void;
}

/** Starts to follow the changes of the store. */
export async function openRuntime(
  common: Common,
  stores: Stores,
  { feed }: Shared,
  front: Front,
  managers: SecretManagers,
  egress: EgressGuard,
): Promise<Kept> {
  const { config, clock, log, lifecycle } = common;
  const { tables, storeClock, vault } = stores;
  // What tokens need is loaded with the first one.
  const tokens = async () => (await import('./tokens.ts')).tokenParts(common, stores, egress);
  const authenticator = createAuthenticator({
    tables,
    clock: storeClock,
    log,
    ...(config.jwt.enabled ? { tokens } : {}),
  });
  const runtime = createRuntime({
    tables,
    vault,
    managers,
    clock,
    log,
    blockInlineConfig: config.blockInlineConfig,
    caughtUp: () => watch.catchUp(),
  });
  const sessions = new ConsoleSessions({ tables, clock: storeClock, publicUrl: () => front.publicUrl(), vault });
  const followers: ((change: Change | null) => void)[] = [];
  const watch = await startWatch({
    tables,
    feed,
    clock,
    log,
    apply: (changes) => {
      for (const change of changes) {
        for (const one of [authenticator, runtime, sessions]) one.invalidate(change);
        for (const follower of followers) follower(change);
      }
    },
    missed: () => {
      for (const one of [authenticator, runtime]) one.invalidateAll();
      sessions.invalidate();
      for (const follower of followers) follower(null);
    },
    confirmed: (readAt) => authenticator.confirm(readAt),
  });
  return {
    authenticator,
    runtime,
    sessions,
    watch: lifecycle.own('change feed', watch),
    follow: (follower) => void followers.push(follower),
  };
}
