/** What a valid config may not mean: told when it is saved, never refused. */
import { formatPath } from '../issues.ts';
import type { Config } from './schema.ts';

/** With these a failure without an answer counts: a time-out, a connection that broke or was never made, silence. */
const NETWORK = [408, 502, 504];

export interface ConfigWarning {
  /** `config.strategy.on_status_codes`. */
  readonly param: string;
  readonly message: string;
}

/** In the order of the config. */
export function lintConfig(config: Config, path: readonly PropertyKey[] = []): ConfigWarning[] {
  const { strategy, targets = [] } = config;
  const out: ConfigWarning[] = [];
  const inTurn = strategy?.mode === 'fallback' && targets.length > 1;
  const warn = (codes: readonly number[] | undefined, at: readonly PropertyKey[]) => {
    const missing = codes === undefined ? [] : NETWORK.filter((code) => !codes.includes(code));
    if (missing.length === 0) return;
    const param = formatPath([...path, ...at], 'config');
    const which = missing.join(', ');
    out.push({
      param,
      message: `${param} lacks ${which}. A provider that cannot be reached counts as 502, one that is too slow as 408 or 504: after a status that is not listed, no other target is tried.`,
    });
  };
  if (inTurn) {
    warn(strategy.on_status_codes, ['strategy', 'on_status_codes']);
    // Nothing comes after the last one.
    for (const [i, target] of targets.slice(0, -1).entries())
      warn(target.on_status_codes, ['targets', i, 'on_status_codes']);
  }
  for (const [i, target] of targets.entries()) out.push(...lintConfig(target, [...path, 'targets', i]));
  return out;
}
