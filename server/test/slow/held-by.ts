/** What held an event loop, from the samples of a profiler: for `neighbour.ts`. */

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

export interface Sampled {
  readonly profile: {
    readonly nodes: readonly ProfileNode[];
    readonly samples: readonly number[];
    readonly timeDeltas: readonly number[];
  };
  /** Milliseconds of each collection, by kind. */
  readonly collections: Readonly<Record<string, readonly number[]>>;
}

/** Microseconds from which on a callback is shown. */
const LONG = 1_000;
const KINDS: Readonly<Record<string, string>> = {
  1: 'scavenge',
  2: 'minor',
  4: 'mark-compact',
  8: 'incremental',
  16: 'weak',
};

interface Span {
  readonly root: string;
  micros: number;
  readonly leaves: Map<string, number>;
}

/** Lines for people. */
export function heldBy({ profile, collections }: Sampled): string {
  const byRoot = new Map<string, { count: number; most: number; sum: number; leaves: Map<string, number> }>();
  for (const span of spansOf(profile)) {
    if (span.micros < LONG) continue;
    const all = byRoot.get(span.root) ?? { count: 0, most: 0, sum: 0, leaves: new Map() };
    byRoot.set(span.root, all);
    all.count += 1;
    all.most = Math.max(all.most, span.micros);
    all.sum += span.micros;
    for (const [leaf, micros] of span.leaves) all.leaves.set(leaf, (all.leaves.get(leaf) ?? 0) + micros);
  }
  const ms = (micros: number) => (micros / 1000).toFixed(1);
  const lines = [...byRoot]
    .sort(([, a], [, b]) => b.sum - a.sum)
    .slice(0, 10)
    .map(([root, { count, most, sum, leaves }]) => {
      const top = [...leaves].sort(([, a], [, b]) => b - a).slice(0, 4);
      const what = top.map(([leaf, micros]) => `${leaf} ${ms(micros)}`).join(', ');
      return `    ${root}: ${count} times, at most ${ms(most)} ms, ${ms(sum)} in all: ${what}\n`;
    });
  for (const [kind, all] of Object.entries(collections)) {
    const sum = all.reduce((total, one) => total + one, 0);
    const most = Math.max(...all).toFixed(1);
    lines.push(`    ${KINDS[kind] ?? kind}: ${all.length} times, at most ${most} ms, ${sum.toFixed(1)} in all\n`);
  }
  return lines.join('');
}

/** Samples one behind the other that belong to the same callback. */
function spansOf({ nodes, samples, timeDeltas }: Sampled['profile']): Span[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map<number, ProfileNode>();
  for (const node of nodes) for (const child of node.children ?? []) parents.set(child, node);
  const spans: Span[] = [];
  let span: Span | null = null;
  samples.forEach((id, i) => {
    const node = byId.get(id);
    const { functionName = '' } = node?.callFrame ?? {};
    if (node === undefined || functionName === '(idle)') {
      span = null;
      return;
    }
    const leaf = nameOf(node);
    const root = functionName.startsWith('(') ? leaf : rootOf(node, parents);
    if (span?.root !== root) {
      span = { root, micros: 0, leaves: new Map() };
      spans.push(span);
    }
    const micros = timeDeltas[i + 1] ?? 0;
    span.micros += micros;
    span.leaves.set(leaf, (span.leaves.get(leaf) ?? 0) + micros);
  });
  return spans;
}

/** The first function that is not of Node.js. */
function rootOf(node: ProfileNode, parents: ReadonlyMap<number, ProfileNode>): string {
  let own: ProfileNode | null = null;
  let last = node;
  for (let at: ProfileNode | undefined = node; at !== undefined; at = parents.get(at.id)) {
    if (at.callFrame.functionName === '(root)') break;
    last = at;
    if (at.callFrame.url !== '' && !at.callFrame.url.startsWith('node:')) own = at;
  }
  return nameOf(own ?? last);
}

function nameOf({ callFrame: { functionName, url, lineNumber } }: ProfileNode): string {
  const name = functionName === '' ? 'a function' : functionName;
  return url === '' ? name : `${name} (${url.split('/').at(-1)}:${lineNumber + 1})`;
}
