// Runs before the first paint (see vite.config.ts). `system` is the absence of a choice.
try {
  const theme = localStorage.getItem('sluice.theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch {
  // Storage may be off: the system's theme stays.
}
