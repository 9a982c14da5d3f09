/** The text of a config: a plain field that says on which line its JSON ends to make sense. */
import { t } from '../../app/i18n.ts';
import { Field } from '../../ui/form.tsx';
import { faultOfJson } from './words.ts';

export function ConfigEditor({ text, onChange }: { text: string; onChange: (text: string) => void }) {
  const fault = faultOfJson(text);
  return (
    <Field
      name="config"
      label={t('Config')}
      help={
        fault === null
          ? t('JSON. The server checks what each field means when you save.')
          : t('Line {line}: {message}', { line: fault.line, message: fault.message })
      }
    >
      {(control) => (
        <textarea
          {...control}
          className="mono config"
          rows={Math.min(28, Math.max(12, text.split('\n').length + 1))}
          spellCheck={false}
          aria-invalid={fault !== null || control['aria-invalid']}
          value={text}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
}

/** What a valid config may not mean. */
export function Warnings({ warnings }: { warnings: readonly { readonly param: string; readonly message: string }[] }) {
  if (warnings.length === 0) return null;
  return (
    <div className="notice info">
      <strong>{t('Worth a look')}</strong>
      <ul>
        {warnings.map(({ param, message }) => (
          <li key={`${param} ${message}`} translate="no">
            {message}
          </li>
        ))}
      </ul>
    </div>
  );
}
