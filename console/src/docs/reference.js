// What the page of the reference lacks for people who do not see it. Its library draws parts as they come into sight.
function mend() {
  for (const button of document.querySelectorAll('button:not([aria-label])')) {
    // biome-ignore lint/performance/useDomNodeTextContent: a text that is hidden names nothing
    if (button.innerText.trim() !== '') continue;
    const toggle = button.hasAttribute('aria-pressed') ? 'Dark mode' : null;
    const inner = button.querySelector('[aria-label]')?.getAttribute('aria-label');
    const other = button.hasAttribute('aria-controls') ? 'Copy' : 'Actions';
    button.setAttribute('aria-label', toggle ?? (inner || button.title || other));
  }
  for (const field of document.querySelectorAll('[role=combobox][contenteditable]')) {
    if (!field.hasAttribute('aria-expanded')) field.setAttribute('aria-expanded', 'false');
    if (!field.ariaLabel && !field.hasAttribute('aria-labelledby')) field.setAttribute('aria-label', 'Name');
  }
  // What scrolls must scroll with keys too.
  for (const list of document.querySelectorAll('.endpoints:not([tabindex])')) list.tabIndex = 0;
  // Landmarks must have names of their own; many cards have one name.
  for (const card of document.querySelectorAll('.scalar-card[role=region]')) card.setAttribute('role', 'group');
}
let planned = false;
new MutationObserver(() => {
  if (planned) return;
  planned = true;
  requestAnimationFrame(() => {
    planned = false;
    mend();
  });
}).observe(document.documentElement, { childList: true, subtree: true });
