/** State that lives in the address, so that a page can be shared, bookmarked and opened in a new tab. */
import { useMemo } from 'react';
import { useSearchParams } from 'wouter';
import type { Zone } from '../app/format.ts';
import { useSession } from './session.tsx';

/** Parameters that all pages share; links of the frame carry them along. */
export const SHARED = ['ws', 'range', 'from', 'to', 'zone'] as const;

/** Reads one parameter and writes any: null or an empty text removes it. Writing replaces the entry of the history. */
export function useUrl() {
  const [search, setSearch] = useSearchParams();
  const set = (changes: Readonly<Record<string, string | null>>) =>
    setSearch(
      (before) => {
        const next = new URLSearchParams(before);
        for (const [name, value] of Object.entries(changes)) {
          if (value === null || value === '') next.delete(name);
          else next.set(name, value);
        }
        return next;
      },
      { replace: true },
    );
  return { get: (name: string) => search.get(name) ?? '', set, search };
}

/** An address inside the console with the shared parameters of this one, and own ones over them. */
export function useHref(): (path: string, own?: Readonly<Record<string, string | null>>) => string {
  const [search] = useSearchParams();
  return (path, own = {}) => {
    const next = new URLSearchParams();
    for (const name of SHARED) {
      const value = search.get(name);
      if (value) next.set(name, value);
    }
    for (const [name, value] of Object.entries(own)) {
      if (value === null) next.delete(name);
      else next.set(name, value);
    }
    return next.size === 0 ? path : `${path}?${next}`;
  };
}

export const useZone = (): Zone => (useUrl().get('zone') === 'utc' ? 'utc' : 'local');

/** The chosen workspace; null stands for all of them. */
export function useWorkspace() {
  const { session } = useSession();
  const chosen = useUrl().get('ws');
  return session.workspaces.find(({ id, slug }) => id === chosen || slug === chosen) ?? null;
}

/** The chosen workspace, or the first one on pages that show one workspace at a time. */
export function useOneWorkspace() {
  const { session } = useSession();
  return useWorkspace() ?? session.workspaces[0] ?? null;
}

export const RANGES = {
  '15m': 15 * 60_000,
  '1h': 3_600_000,
  '24h': 86_400_000,
  '7d': 7 * 86_400_000,
  '30d': 30 * 86_400_000,
} as const;

export interface Range {
  /** ISO 8601. */
  readonly from: string;
  readonly to: string;
  /** `24h`, `month`, or `custom`. */
  readonly name: string;
}

/** Relative ranges end at the last full half minute, so that pages which ask the same within it share one answer. */
const STEP = 30_000;

/** The range of the address; `fallback` where it names none. */
export function useRange(fallback = '24h'): Range {
  const { get } = useUrl();
  const [from, to, name] = [get('from'), get('to'), get('range')];
  const now = Math.ceil(Date.now() / STEP) * STEP;
  return useMemo(() => rangeOf({ from, to, name: name || fallback }, now), [from, to, name, fallback, now]);
}

/** For `useRange`; `now` in milliseconds since the epoch. */
export function rangeOf(asked: Range, now: number): Range {
  const [from, to] = [new Date(asked.from), new Date(asked.to)];
  if (asked.from && asked.to && from < to) return { from: from.toISOString(), to: to.toISOString(), name: 'custom' };
  const end = new Date(now).toISOString();
  if (asked.name === 'month') {
    const today = new Date(now);
    const first = Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), 1);
    return { from: new Date(first).toISOString(), to: end, name: 'month' };
  }
  const name = asked.name in RANGES ? (asked.name as keyof typeof RANGES) : '24h';
  return { from: new Date(now - RANGES[name]).toISOString(), to: end, name };
}

/** Where analytics look: the chosen workspace; all of them for owners and admins who chose none. */
export function useReach(): { workspace_id: string } | { all_workspaces: true } | null {
  const { session } = useSession();
  const chosen = useWorkspace();
  const one = useOneWorkspace();
  if (chosen === null && session.user.role !== 'member') return { all_workspaces: true };
  return one === null ? null : { workspace_id: one.id };
}

/**
 * The workspace that lists of the organisation's objects are asked for: the chosen one; none for owners and admins who chose
 * none, who see all; a member's first, because members have their rights in workspaces only.
 */
export function useListedWorkspace(): { workspace_id?: string } {
  const { session } = useSession();
  const chosen = useWorkspace();
  const one = useOneWorkspace();
  const found = session.user.role === 'member' ? one : chosen;
  return found === null ? {} : { workspace_id: found.id };
}
