export type BuildOutcome = 'current' | 'built' | 'kept' | 'missing';

export function sourceHash(root?: string): string;
export function isCurrent(root?: string): boolean;
export function mayBeBuilt(root?: string): boolean;
export function ensureBuilt(root?: string, say?: (line: string) => void, node?: string): Promise<BuildOutcome>;
