/** Forms whose faults the server names: at the field, and in a summary on top that leads to it. */
import { createContext, type FormEvent, type ReactNode, useContext, useEffect, useId, useRef } from 'react';
import { ApiError } from '../api/client.ts';
import { t } from '../app/i18n.ts';

interface Fault {
  readonly param: string | null;
  readonly message: string;
}

/** What is wrong, by field; of an error that is no refusal its message alone. */
export function faultsOf(error: unknown): Fault[] {
  if (error === null || error === undefined) return [];
  if (!(error instanceof ApiError))
    return [{ param: null, message: error instanceof Error ? error.message : String(error) }];
  const { problems, param } = error.refusal;
  return problems && problems.length > 0 ? [...problems] : [{ param: param ?? null, message: error.message }];
}

interface FormContext {
  readonly faults: readonly Fault[];
  readonly idOf: (name: string) => string;
}

const Context = createContext<FormContext>({ faults: [], idOf: (name) => name });

/** @param labels of the fields by their `param`, for the summary */
export function Form(props: {
  error: unknown;
  labels: Readonly<Record<string, string>>;
  onSubmit: () => void;
  children: ReactNode;
}) {
  const { error, labels, onSubmit, children } = props;
  const prefix = useId();
  const summary = useRef<HTMLDivElement>(null);
  const faults = faultsOf(error);
  useEffect(() => {
    if (error) summary.current?.focus();
  }, [error]);
  const idOf = (name: string) => `${prefix}${name.replaceAll(/[^\w]/g, '-')}`;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSubmit();
  };
  return (
    <Context.Provider value={{ faults, idOf }}>
      <form onSubmit={submit} noValidate>
        {faults.length > 0 && (
          <div className="notice bad" role="alert" tabIndex={-1} ref={summary}>
            <strong>{t('This was not saved')}</strong>
            <ul>
              {faults.map(({ param, message }) => {
                const field = fieldOf(param, Object.keys(labels));
                return (
                  <li key={`${param}${message}`} translate="no">
                    {field === null ? message : <a href={`#${idOf(field)}`}>{`${labels[field]}: ${message}`}</a>}
                  </li>
                );
              })}
            </ul>
          </div>
        )}
        {children}
      </form>
    </Context.Provider>
  );
}

/** The field of a `param`: itself, or the nearest one above: `usage_limits.credit_limit` → `usage_limits`. */
function fieldOf(param: string | null, fields: readonly string[]): string | null {
  for (let path = param; path !== null && path !== ''; path = path.slice(0, Math.max(0, path.lastIndexOf('.')))) {
    if (fields.includes(path)) return path;
  }
  return null;
}

/** A labelled field; `children` gets what ties the control to its label, help and faults. */
export function Field(props: {
  /** `param` of the API. */
  name: string;
  label: string;
  help?: ReactNode;
  children: (control: { id: string; 'aria-describedby': string | undefined; 'aria-invalid': boolean }) => ReactNode;
}) {
  const { name, label, help, children } = props;
  const { faults, idOf } = useContext(Context);
  const id = idOf(name);
  const own = faults.filter(({ param }) => param === name || param?.startsWith(`${name}.`));
  const described = [help ? `${id}-help` : '', own.length > 0 ? `${id}-fault` : ''].filter((part) => part !== '');
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      {children({ id, 'aria-describedby': described.join(' ') || undefined, 'aria-invalid': own.length > 0 })}
      {help && (
        <span className="muted" id={`${id}-help`}>
          {help}
        </span>
      )}
      {own.length > 0 && (
        <span className="fault" id={`${id}-fault`} translate="no">
          {own.map(({ message }) => message).join(' ')}
        </span>
      )}
    </div>
  );
}
