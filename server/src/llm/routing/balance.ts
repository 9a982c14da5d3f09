/** Which target of a load balancer a request goes to. */

import { createHash } from 'node:crypto';
import { SluiceError } from '../../kernel/errors.ts';
import type { Uses } from '../exchange.ts';
import { factsOf } from './facts.ts';
import type { BalanceNode, RouteNode, Sticky } from './route.ts';

/** One of the targets, each with a chance in proportion to its weight. `random` is at least 0 and below 1. */
export function draw(targets: readonly RouteNode[], random: number): RouteNode {
  let sum = 0;
  for (const { weight } of targets) sum += weight;
  let at = random * sum;
  for (const target of targets) {
    at -= target.weight;
    if (at < 0) return target;
  }
  // Sums of fractions may leave a little over.
  const last = targets.at(-1);
  if (last === undefined) throw new SluiceError('internal', 'A load balancer of the config has no targets.');
  return last;
}

export interface Drawn {
  readonly pick: RouteNode;
  /** What it follows from: chance, the values of the hash fields, or where requests with these values went before. */
  readonly by: 'weight' | 'hash' | 'session';
}

/**
 * A target that may be called now. Requests with the same values of the hash fields go to the same one until the time of
 * the first of them is over. Their draw follows from the values, so that nodes without a shared cache agree, too.
 *
 * @param place of the config, for the cache
 * @param mayCall whether a target is not left out
 */
export function balance(
  x: Uses<'attempt' | 'request' | 'execution', 'cache' | 'clock' | 'log' | 'random'>,
  node: BalanceNode,
  place: string,
  mayCall: (target: RouteNode) => boolean,
): Drawn | Promise<Drawn> {
  const able = node.targets.filter(mayCall);
  const targets = able.length === 0 ? node.targets : able;
  const values = node.sticky === null ? null : valuesOf(x, node.sticky);
  if (node.sticky === null || values === null) return { pick: draw(targets, x.services.random()), by: 'weight' };
  return stuck(x, node, targets, `sticky:${place} ${node.path}:`, values, node.sticky.ttlMs);
}

async function stuck(
  x: Uses<'request', 'cache' | 'clock' | 'log'>,
  node: BalanceNode,
  targets: readonly RouteNode[],
  place: string,
  values: string,
  ttlMs: number,
): Promise<Drawn> {
  const { cache, clock, log } = x.services;
  const key = place + createHash('sha256').update(values).digest('base64url');
  try {
    const known = await cache.get(key);
    const before = known === null ? undefined : node.targets[Number(known.toString('latin1'))];
    if (before !== undefined && targets.includes(before)) return { pick: before, by: 'session' };
  } catch (error) {
    log.warn('the cache could not be asked for a session', { request_id: x.request.id, error: String(error) });
  }
  const window = Math.floor(clock.now() / ttlMs);
  const hash = createHash('sha256').update(`${key} ${window}`).digest();
  const pick = draw(targets, hash.readUInt32BE(0) / 2 ** 32);
  if (!x.request.dryRun)
    cache
      .set(key, Buffer.from(String(node.targets.indexOf(pick)), 'latin1'), ttlMs)
      .catch((error: unknown) => log.warn('a session could not be kept', { error: String(error) }));
  return { pick, by: 'hash' };
}

/** Null when the request has none of the values: there is nothing to keep together. */
function valuesOf(x: Uses<'attempt' | 'request' | 'execution'>, { reads, params }: Sticky): string | null {
  const facts = factsOf(x, params);
  const values = reads.map((read) => read(facts) ?? null);
  return values.every((value) => value === null) ? null : JSON.stringify(values);
}
