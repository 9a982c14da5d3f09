/** See built.mjs. */
export function builtMain(root?: string): string | null;
export function ensureBuilt(root?: string, say?: (line: string) => void): Promise<'current' | 'built' | 'missing'>;
