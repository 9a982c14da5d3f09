/** Fields of a form made from the JSON Schema of their contents. */
import { useState } from 'react';
import { t } from '../app/i18n.ts';
import { Field } from './form.tsx';
import { parsed } from './json.tsx';

/** Of a schema, as far as a field needs it. */
interface Content {
  readonly type?: unknown;
  readonly enum?: readonly unknown[];
  readonly items?: Content;
  readonly default?: unknown;
  readonly minimum?: number;
  readonly maximum?: number;
}

export interface SchemaField {
  readonly name: string;
  readonly required: boolean;
  readonly secret?: boolean;
  readonly schema: Readonly<Record<string, unknown>>;
}

/** What a form has so far: what is left empty is not in it. */
export type Values = Readonly<Record<string, unknown>>;

/** The properties of the schema of an object. */
export function fieldsOfSchema(schema: Readonly<Record<string, unknown>>): SchemaField[] {
  const required = Array.isArray(schema.required) ? (schema.required as unknown[]) : [];
  const properties = (schema.properties ?? {}) as Record<string, Record<string, unknown>>;
  return Object.entries(properties).map(([name, own]) => ({ name, required: required.includes(name), schema: own }));
}

/** `azure_resource_name` and `minWords` as people write them: `Azure resource name`, `Min words`. */
export function humanName(name: string): string {
  const words = name
    .replaceAll('_', ' ')
    .replaceAll(/([a-z0-9])([A-Z])/g, (_all, before: string, letter: string) => `${before} ${letter.toLowerCase()}`)
    .replaceAll(/\b(aws|url|uri|id|jwks|json|ssn|arn|ptu|wif|api)\b/gi, (word) => word.toUpperCase())
    .replaceAll(/\boauth\b/gi, 'OAuth')
    .replaceAll(/\bopenai\b/gi, 'OpenAI');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** One control for each field. `prefix` goes before its name in the `param` of a refusal: `configurations`. */
export function SchemaFields(props: {
  fields: readonly SchemaField[];
  prefix: string;
  values: Values;
  onChange: (values: Values) => void;
}) {
  const { fields, prefix, values, onChange } = props;
  const set = (name: string, value: unknown) => {
    const { [name]: _before, ...others } = values;
    onChange(value === undefined || value === '' ? others : { ...others, [name]: value });
  };
  return fields.map((field) => (
    <OneField
      key={field.name}
      field={field}
      name={`${prefix}.${field.name}`}
      value={values[field.name]}
      onChange={(value) => set(field.name, value)}
    />
  ));
}

function OneField(props: { field: SchemaField; name: string; value: unknown; onChange: (value: unknown) => void }) {
  const { field, name, value, onChange } = props;
  const content = field.schema as Content;
  const label = `${t(humanName(field.name))}${field.required ? '' : ` (${t('optional')})`}`;
  if (content.type === 'boolean') {
    return (
      <label className="choice">
        <input
          type="checkbox"
          checked={(value ?? content.default) === true}
          onChange={(event) => onChange(event.target.checked)}
        />
        <span>{t(humanName(field.name))}</span>
      </label>
    );
  }
  const choices = content.type === 'array' ? content.items?.enum : undefined;
  if (choices !== undefined) {
    return <Choices label={label} choices={choices.map(String)} value={value ?? content.default} onChange={onChange} />;
  }
  return (
    <Field name={name} label={label} help={helpOf(content)}>
      {(control) => <Control control={control} field={field} content={content} value={value} onChange={onChange} />}
    </Field>
  );
}

function helpOf(content: Content): string | undefined {
  if (content.type === 'array' && content.items?.type === 'string') return t('One on each line.');
  if (content.default === undefined || typeof content.default === 'object') return undefined;
  return t('Without it: {value}', { value: String(content.default) });
}

function Control(props: {
  control: { id: string; 'aria-describedby': string | undefined; 'aria-invalid': boolean };
  field: SchemaField;
  content: Content;
  value: unknown;
  onChange: (value: unknown) => void;
}) {
  const { control, field, content, value, onChange } = props;
  if (content.enum !== undefined) {
    return (
      <select {...control} value={String(value ?? '')} onChange={(event) => onChange(event.target.value)}>
        <option value="">{t('Choose')}</option>
        {content.enum.map((one) => (
          <option key={String(one)} value={String(one)} translate="no">
            {String(one)}
          </option>
        ))}
      </select>
    );
  }
  if (content.type === 'integer' || content.type === 'number') {
    return (
      <input
        {...control}
        type="number"
        min={content.minimum}
        max={content.maximum}
        step={content.type === 'integer' ? 1 : 'any'}
        value={value === undefined ? '' : String(value)}
        onChange={(event) => onChange(event.target.value === '' ? undefined : Number(event.target.value))}
      />
    );
  }
  if (content.type === 'array' && content.items?.type === 'string') {
    return <Lines control={control} value={value} onChange={onChange} />;
  }
  if (content.type === 'string') {
    return (
      <input
        {...control}
        type={field.secret ? 'password' : 'text'}
        autoComplete="off"
        spellCheck={false}
        value={String(value ?? '')}
        onChange={(event) => onChange(event.target.value)}
      />
    );
  }
  return <JsonText control={control} value={value} onChange={onChange} />;
}

type TextProps = {
  control: { id: string; 'aria-describedby': string | undefined; 'aria-invalid': boolean };
  value: unknown;
  onChange: (value: unknown) => void;
};

function Lines({ control, value, onChange }: TextProps) {
  const [text, setText] = useState(Array.isArray(value) ? value.join('\n') : '');
  return (
    <textarea
      {...control}
      rows={3}
      spellCheck={false}
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        const lines = event.target.value.split('\n').flatMap((line) => (line.trim() === '' ? [] : [line.trim()]));
        onChange(lines.length === 0 ? undefined : lines);
      }}
    />
  );
}

/** What is no JSON goes as a text, and the server says what it must be. */
function JsonText({ control, value, onChange }: TextProps) {
  const [text, setText] = useState(value === undefined ? '' : JSON.stringify(value, null, 2));
  return (
    <textarea
      {...control}
      className="mono"
      rows={4}
      spellCheck={false}
      placeholder="{ }"
      value={text}
      onChange={(event) => {
        setText(event.target.value);
        onChange(event.target.value.trim() === '' ? undefined : parsed(event.target.value));
      }}
    />
  );
}

function Choices(props: {
  label: string;
  choices: readonly string[];
  value: unknown;
  onChange: (value: unknown) => void;
}) {
  const { label, choices, value, onChange } = props;
  const chosen = Array.isArray(value) ? value.map(String) : [];
  return (
    <fieldset className="choices grid">
      <legend>{label}</legend>
      {choices.map((one) => (
        <label key={one} className="choice">
          <input
            type="checkbox"
            checked={chosen.includes(one)}
            onChange={(event) =>
              onChange(choices.filter((other) => (other === one ? event.target.checked : chosen.includes(other))))
            }
          />
          <span translate="no">{one}</span>
        </label>
      ))}
    </fieldset>
  );
}
