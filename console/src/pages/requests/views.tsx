/** Saved views: filters, range and columns under a name, kept in this browser. The address itself is what others get. */
import { Bookmark, Trash2 } from 'lucide-react';
import { useState } from 'react';
import { useLocation } from 'wouter';
import { t } from '../../app/i18n.ts';
import { readStored, store } from '../../app/stored.ts';
import { useUrl } from '../../shell/url-state.ts';
import { Popover } from '../../ui/menu.tsx';

export interface View {
  readonly name: string;
  /** Of the address, without `?`. */
  readonly search: string;
}

const KEY = 'sluice.views';
const MOST = 50;
/** What is open is no part of a view. */
const PASSING = ['open', 'live'];

export function readViews(text: string | null): View[] {
  try {
    const value: unknown = JSON.parse(text ?? '[]');
    if (!Array.isArray(value)) return [];
    return value.flatMap((one: Partial<View> | null) =>
      typeof one?.name === 'string' && typeof one.search === 'string' ? [{ name: one.name, search: one.search }] : [],
    );
  } catch {
    return [];
  }
}

export function Views() {
  const [views, setViews] = useState(() => readViews(readStored(KEY)));
  const [name, setName] = useState('');
  const [, navigate] = useLocation();
  const { search } = useUrl();
  const keep = (next: View[]) => {
    store(KEY, next.length === 0 ? null : JSON.stringify(next));
    setViews(next);
  };
  const save = () => {
    const own = new URLSearchParams(search);
    for (const passing of PASSING) own.delete(passing);
    const made = { name: name.trim(), search: own.toString() };
    if (made.name === '') return;
    keep([...views.filter((one) => one.name !== made.name), made].slice(-MOST));
    setName('');
  };
  return (
    <Popover
      align="end"
      label={
        <>
          <Bookmark size={15} aria-hidden="true" /> {t('Views')}
        </>
      }
    >
      {(close) => (
        <div className="picker">
          {views.length === 0 && <p className="muted">{t('No view is saved in this browser.')}</p>}
          <ul className="plain-list">
            {views.map((view) => (
              <li key={view.name} className="row">
                <button
                  type="button"
                  className="as-link"
                  onClick={() => {
                    navigate(`/requests${view.search === '' ? '' : `?${view.search}`}`);
                    close();
                  }}
                >
                  <span translate="no">{view.name}</span>
                </button>
                <button
                  type="button"
                  className="button small"
                  aria-label={t('Delete the view {name}', { name: view.name })}
                  onClick={() => keep(views.filter((one) => one.name !== view.name))}
                >
                  <Trash2 size={14} aria-hidden="true" />
                </button>
              </li>
            ))}
          </ul>
          <form
            className="row"
            onSubmit={(event) => {
              event.preventDefault();
              save();
            }}
          >
            <label className="field">
              <span>{t('Name of this view')}</span>
              <input type="text" autoComplete="off" value={name} onChange={(event) => setName(event.target.value)} />
            </label>
            <button type="submit" className="button small">
              {t('Save')}
            </button>
          </form>
          <p className="muted">{t('Others get a view by its address.')}</p>
        </div>
      )}
    </Popover>
  );
}
