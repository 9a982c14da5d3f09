/** Keys of the console. Single letters can be switched off, and are off while something is typed. */
import { useEffect, useRef } from 'react';
import { useLocation } from 'wouter';
import { t } from '../app/i18n.ts';
import { readStored, store } from '../app/stored.ts';
import { Dialog } from '../ui/dialog.tsx';
import { PAGES } from './pages.ts';
import { useCan } from './session.tsx';
import { useHref } from './url-state.ts';

const OFF = 'sluice.keys';
/** How long `g` waits for the letter of a page. */
const CHORD_MS = 1_500;

export const lettersOn = (): boolean => readStored(OFF) !== 'off';
export const setLetters = (on: boolean): void => store(OFF, on ? null : 'off');

/** Elements that a key presses, by a mark that pages put on them. */
const MARKS: Readonly<Record<string, string>> = {
  '/': 'filter',
  l: 'live',
  '.': 'curl',
  t: 'range',
  '[': 'previous',
  ']': 'next',
  c: 'copy-id',
};

export function useKeyboard(open: (dialog: 'palette' | 'help') => void): void {
  const [, navigate] = useLocation();
  const href = useHref();
  const can = useCan();
  const chord = useRef(0);
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k') {
        event.preventDefault();
        return open('palette');
      }
      const typing =
        event.target instanceof Element && event.target.closest('input, textarea, select, dialog, [role=slider]');
      if (typing || event.metaKey || event.ctrlKey || event.altKey || !lettersOn()) return;
      if (event.timeStamp - chord.current < CHORD_MS && chord.current > 0) {
        chord.current = 0;
        const page = PAGES.find(({ key, scope }) => key === event.key && can(scope));
        if (page) navigate(href(page.path));
        return;
      }
      if (event.key === 'g') chord.current = event.timeStamp;
      else if (event.key === '?') open('help');
      else if (event.key === 'j' || event.key === 'k') step(event.key === 'j' ? 1 : -1);
      else if (event.key === 'x') inRow('input[type=checkbox]')?.click();
      else if (event.key === 'o') openInTab(inRow('a'));
      else press(MARKS[event.key], event);
    };
    addEventListener('keydown', onKeyDown);
    return () => removeEventListener('keydown', onKeyDown);
  }, [open, navigate, href, can]);
}

function press(mark: string | undefined, event: KeyboardEvent): void {
  const found =
    mark &&
    document.querySelector<HTMLElement>(
      `main [data-key="${mark}"] button, main [data-key="${mark}"] select, main button[data-key="${mark}"], main a[data-key="${mark}"]`,
    );
  if (!found) return;
  event.preventDefault();
  if (found instanceof HTMLSelectElement) found.focus();
  else found.click();
}

/** What the row has that holds the focus. */
const inRow = (selector: string): HTMLElement | null | undefined =>
  document.activeElement?.closest('main .list tbody tr')?.querySelector<HTMLElement>(selector);

function openInTab(link: HTMLElement | null | undefined): void {
  if (link instanceof HTMLAnchorElement) window.open(link.href, '_blank', 'noopener');
}

/** Moves the focus to the link of the next or former row. */
function step(by: 1 | -1): void {
  const links = [
    ...document.querySelectorAll<HTMLElement>('main .list tbody tr a:first-of-type, main .row-card a:first-of-type'),
  ];
  const at = links.indexOf(document.activeElement as HTMLElement);
  links[at === -1 ? (by === 1 ? 0 : links.length - 1) : at + by]?.focus();
}

export function KeyboardHelp({ onClose }: { onClose: () => void }) {
  const can = useCan();
  const keys: readonly (readonly [string, string])[] = [
    ['Ctrl K', t('Search pages, objects and ids')],
    ['/', t('Filter the list')],
    ['j  k', t('Next and previous row')],
    ['Enter', t('Open the row')],
    ['o', t('Open the row in a new tab')],
    ['x', t('Choose the row')],
    ['[  ]', t('Previous and next request')],
    ['c', t('Copy the id of the request')],
    ['l', t('Follow requests live')],
    ['t', t('Change the range of time')],
    ['.', t('Show the call as curl')],
    ['Esc', t('Close what is open')],
    ...PAGES.flatMap((page) => (page.key && can(page.scope) ? [[`g ${page.key}`, t(page.label)] as const] : [])),
    ['?', t('Show these keys')],
  ];
  return (
    <Dialog title={t('Keys')} onClose={onClose}>
      <dl className="keys-list">
        {keys.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p className="muted">{t('Single letters can be switched off on the page Me.')}</p>
      <button type="button" className="button" onClick={onClose}>
        {t('Close')}
      </button>
    </Dialog>
  );
}
