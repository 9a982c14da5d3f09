/** Filters of a list: what the server filters by, in the address. */
import { SlidersHorizontal, X } from 'lucide-react';
import { useId, useState } from 'react';
import { plural, t } from '../app/i18n.ts';
import { useUrl } from '../shell/url-state.ts';
import { Popover } from './menu.tsx';

export interface Filter {
  /** Of the query of the API, and of the address. */
  readonly param: string;
  readonly label: string;
  /** A fixed choice; without it a text. */
  readonly options?: readonly { readonly value: string; readonly label: string }[];
  readonly hint?: string;
}

/** The filters that are set, as the query of the API takes them. */
export function useFilters(filters: readonly Filter[]) {
  const { get, set } = useUrl();
  const active = filters.flatMap((filter) => {
    const value = get(filter.param);
    return value === '' ? [] : [{ filter, value }];
  });
  const query = Object.fromEntries(active.map(({ filter, value }) => [filter.param, value]));
  const clear = () => set(Object.fromEntries(filters.map(({ param }) => [param, null])));
  return { active, query, clear, set };
}

/** Chips of what is set, and the form to set more. */
export function FilterBar({ filters }: { filters: readonly Filter[] }) {
  const { active, clear, set } = useFilters(filters);
  return (
    <div className="filters">
      <Popover
        label={
          <>
            <SlidersHorizontal size={15} aria-hidden="true" /> {t('Filter')}
          </>
        }
      >
        {(close) => <FilterForm filters={filters} onDone={close} />}
      </Popover>
      {active.map(({ filter, value }) => (
        <span key={filter.param} className="chip">
          <span>
            {filter.label} {t('is')}{' '}
            <strong translate="no">{filter.options?.find((one) => one.value === value)?.label ?? value}</strong>
          </span>
          <button
            type="button"
            aria-label={t('Remove the filter {label}', { label: filter.label })}
            onClick={() => set({ [filter.param]: null })}
          >
            <X size={14} aria-hidden="true" />
          </button>
        </span>
      ))}
      {active.length > 1 && (
        <button type="button" className="button plain" onClick={clear}>
          {t('Clear filters')}
        </button>
      )}
      <span className="visually-hidden" role="status">
        {plural(active.length, { one: '{n} filter', other: '{n} filters' })}
      </span>
    </div>
  );
}

function FilterForm({ filters, onDone }: { filters: readonly Filter[]; onDone: () => void }) {
  const { get, set } = useUrl();
  const prefix = useId();
  const [values, setValues] = useState(() => Object.fromEntries(filters.map(({ param }) => [param, get(param)])));
  return (
    <form
      className="filter-form"
      onSubmit={(event) => {
        event.preventDefault();
        set(values);
        onDone();
      }}
    >
      {filters.map(({ param, label, options, hint }) => {
        const id = `${prefix}${param}`;
        const onChange = (value: string) => setValues({ ...values, [param]: value });
        return (
          <div key={param} className="field">
            <label htmlFor={id}>{label}</label>
            {options ? (
              <select id={id} value={values[param]} onChange={(event) => onChange(event.target.value)}>
                <option value="">{t('Any')}</option>
                {options.map((one) => (
                  <option key={one.value} value={one.value}>
                    {one.label}
                  </option>
                ))}
              </select>
            ) : (
              <input
                id={id}
                type="text"
                autoComplete="off"
                spellCheck={false}
                value={values[param]}
                aria-describedby={hint ? `${id}-hint` : undefined}
                onChange={(event) => onChange(event.target.value.trim())}
              />
            )}
            {hint && (
              <span className="muted" id={`${id}-hint`}>
                {hint}
              </span>
            )}
          </div>
        );
      })}
      <div className="row">
        <button type="submit" className="button primary">
          {t('Apply')}
        </button>
      </div>
    </form>
  );
}
