/** Light, dark, or as the system says. `theme-before-paint.js` reads the same key before the first paint. */
import { readStored, store } from './stored.ts';

export type Theme = 'light' | 'dark' | 'system';

const KEY = 'sluice.theme';

export function currentTheme(): Theme {
  const kept = readStored(KEY);
  return kept === 'light' || kept === 'dark' ? kept : 'system';
}

export function setTheme(theme: Theme): void {
  store(KEY, theme === 'system' ? null : theme);
  if (theme === 'system') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
