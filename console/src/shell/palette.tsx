/** Search over pages, actions, objects by name, and ids; opened by Ctrl K. */
import { type KeyboardEvent, useId, useMemo, useState } from 'react';
import { useLocation } from 'wouter';
import { useApi } from '../api/queries.ts';
import { t } from '../app/i18n.ts';
import { setTheme } from '../app/theme.ts';
import { Dialog } from '../ui/dialog.tsx';
import { PAGES } from './pages.ts';
import { useCan, useSession } from './session.tsx';
import { useHref, useListedWorkspace } from './url-state.ts';

interface Entry {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly run: () => void;
  /** A name that somebody gave, not a text of the console. */
  readonly given?: true;
}

const ID = /^[\w-]{16,64}$/;
const SHOWN = 12;

export function Palette({ onClose, onHelp }: { onClose: () => void; onHelp: () => void }) {
  const [typed, setTyped] = useState('');
  const [at, setAt] = useState(0);
  const list = useId();
  const entries = useEntries(onHelp);
  const found = useMemo(() => match(entries, typed.trim()), [entries, typed]);
  const byId = useRequestById();
  const all = ID.test(typed.trim()) ? [...byId(typed.trim()), ...found] : found;
  const selected = Math.min(at, all.length - 1);
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    onClose();
    entry.run();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === 'Enter') run(all[selected]);
    const next = { ArrowDown: Math.min(all.length - 1, selected + 1), ArrowUp: Math.max(0, selected - 1) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setAt(next);
  };
  return (
    <Dialog title={t('Search')} onClose={onClose} wide>
      <input
        type="text"
        role="combobox"
        aria-label={t('Search pages, objects and ids')}
        aria-expanded={all.length > 0}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={all[selected] ? `${list}-${all[selected].id}` : undefined}
        autoComplete="off"
        spellCheck={false}
        value={typed}
        onChange={(event) => {
          setTyped(event.target.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div role="listbox" id={list} aria-label={t('Found')} className="palette-list">
        {all.map((entry, index) => (
          // biome-ignore lint/a11y/useFocusableInteractive: the focus stays in the field
          // biome-ignore lint/a11y/useKeyWithClickEvents: the keys are the field's
          <div
            key={entry.id}
            id={`${list}-${entry.id}`}
            role="option"
            aria-selected={index === selected}
            className="palette-entry"
            onClick={() => run(entry)}
            onPointerMove={() => setAt(index)}
          >
            <span translate={entry.given ? 'no' : undefined}>{entry.name}</span>
            <span className="muted">{entry.kind}</span>
          </div>
        ))}
      </div>
      {all.length === 0 && <p className="muted">{t('Nothing is named so. Paste the id of a request to open it.')}</p>}
    </Dialog>
  );
}

/** All words of the text are in the name. */
function match(entries: readonly Entry[], text: string): Entry[] {
  const words = text.toLowerCase().split(/\s+/);
  return entries
    .filter(({ name, kind }) => words.every((word) => `${name} ${kind}`.toLowerCase().includes(word)))
    .slice(0, SHOWN);
}

function useRequestById(): (id: string) => Entry[] {
  const [, navigate] = useLocation();
  const href = useHref();
  const can = useCan();
  return (id) =>
    can('logs.list')
      ? [
          {
            id: 'request',
            name: id,
            kind: t('Open this request'),
            given: true,
            run: () => navigate(href(`/requests/${id}`)),
          },
          {
            id: 'trace',
            name: id,
            kind: t('Requests of this trace'),
            given: true,
            run: () => navigate(href('/requests', { trace_id: id })),
          },
        ]
      : [];
}

function useEntries(onHelp: () => void): Entry[] {
  const { session, signOut } = useSession();
  const [, navigate] = useLocation();
  const href = useHref();
  const can = useCan();
  const keys = useApi(
    'GET /v1/api-keys',
    { query: { page_size: 100, ...useListedWorkspace() } },
    { enabled: can('workspace_user_api_keys.list') },
  );
  const go = (path: string, own?: Record<string, string | null>) => () => navigate(href(path, own));
  const action = (id: string, name: string, run: () => void): Entry => ({ id, name, kind: t('Action'), run });
  return [
    ...PAGES.filter((page) => page.group !== null && can(page.scope)).map((page) => ({
      id: `page-${page.key}`,
      name: t(page.label),
      kind: t('Page'),
      run: go(page.path),
    })),
    ...(can('workspace_user_api_keys.create') ? [action('new-key', t('New API key'), go('/keys', { new: '1' }))] : []),
    ...(can('workspaces.create') ? [action('new-workspace', t('New workspace'), go('/workspaces', { new: '1' }))] : []),
    ...(can('organisation_users.create') ? [action('invite', t('Invite somebody'), go('/people', { new: '1' }))] : []),
    action('light', t('Light theme'), () => setTheme('light')),
    action('dark', t('Dark theme'), () => setTheme('dark')),
    action('help', t('Show the keys'), onHelp),
    action('account', t('Your account'), go('/account')),
    action('sign-out', t('Sign out'), () => void signOut()),
    ...session.workspaces.map((one) => ({
      id: `ws-${one.id}`,
      name: one.name,
      kind: t('Workspace'),
      given: true as const,
      run: go('/workspaces', { ws: one.slug }),
    })),
    ...(keys.data?.data ?? []).map((one) => ({
      id: `key-${one.id}`,
      name: one.name,
      kind: t('API key'),
      given: true as const,
      run: go(`/keys/${one.id}`),
    })),
  ];
}
