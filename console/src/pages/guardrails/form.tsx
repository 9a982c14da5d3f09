/** Checks with forms made from their schemas, and what happens where one fails. */
import { Plus, Trash2 } from 'lucide-react';
import { useId, useState } from 'react';
import { t } from '../../app/i18n.ts';
import { Field } from '../../ui/form.tsx';
import { fieldsOfSchema, humanName, SchemaFields } from '../../ui/schema-form.tsx';
import { type Catalogue, type CheckForm, checkName, type GuardrailForm } from './words.ts';

/** Names of all fields by their `param`, for the summary of a refusal. */
export function labelsOf({ checks }: GuardrailForm, catalogue: Catalogue): Record<string, string> {
  const labels: Record<string, string> = { name: t('Name'), checks: t('Checks'), actions: t('What happens') };
  for (const [at, { id }] of checks.entries()) {
    labels[`checks[${at}]`] = checkName(id);
    const kind = catalogue.find((one) => one.id === id);
    for (const { name } of fieldsOfSchema(kind?.parameters ?? {})) {
      labels[`checks[${at}].parameters.${name}`] = `${checkName(id)}, ${t(humanName(name))}`;
    }
  }
  return labels;
}

/** @param target decides which checks there are to choose */
export function GuardrailFields(props: {
  form: GuardrailForm;
  catalogue: Catalogue;
  target: 'llm' | 'mcp_tools';
  onChange: (form: GuardrailForm) => void;
}) {
  const { form, catalogue, target, onChange } = props;
  // Positions move when a check goes: each has a key for as long as it is in the form.
  const [keys, setKeys] = useState(() => form.checks.map((_check, at) => at));
  const next = Math.max(-1, ...keys) + 1;
  const put = (checks: readonly CheckForm[]) => onChange({ ...form, checks });
  return (
    <>
      <Field name="name" label={t('Name')}>
        {(control) => (
          <input
            {...control}
            type="text"
            value={form.name}
            onChange={(event) => onChange({ ...form, name: event.target.value })}
          />
        )}
      </Field>
      {form.checks.map((check, at) => (
        <OneCheck
          key={keys[at] ?? at}
          check={check}
          at={at}
          catalogue={catalogue}
          onChange={(changed) => put(form.checks.map((one, n) => (n === at ? changed : one)))}
          onRemove={() => {
            setKeys(keys.filter((_key, n) => n !== at));
            put(form.checks.filter((_one, n) => n !== at));
          }}
        />
      ))}
      <AddCheck
        catalogue={catalogue.filter(({ targets }) => targets.includes(target))}
        first={form.checks.length === 0}
        onAdd={(id) => {
          setKeys([...keys, next]);
          put([...form.checks, { id, is_enabled: true, parameters: {} }]);
        }}
      />
      <Actions form={form} onChange={onChange} />
    </>
  );
}

function OneCheck(props: {
  check: CheckForm;
  at: number;
  catalogue: Catalogue;
  onChange: (check: CheckForm) => void;
  onRemove: () => void;
}) {
  const { check, at, catalogue, onChange, onRemove } = props;
  const kind = catalogue.find(({ id }) => id === check.id);
  const heading = useId();
  const prefix = `checks[${at}].parameters`;
  const set = (parameters: CheckForm['parameters']) => onChange({ ...check, parameters });
  return (
    <section className="check" aria-labelledby={heading}>
      <div className="card-head">
        <h3 id={heading}>
          {checkName(check.id)} <code className="muted">{check.id}</code>
        </h3>
        <button
          type="button"
          className="button small"
          aria-label={t('Remove {name}', { name: checkName(check.id) })}
          onClick={onRemove}
        >
          <Trash2 size={15} aria-hidden="true" />
        </button>
      </div>
      <p className="muted">
        {kind?.phases.length === 1
          ? kind.phases[0] === 'input'
            ? t('Judges requests.')
            : t('Judges answers.')
          : t('Judges requests and answers.')}
        {kind !== undefined &&
          kind.timeout_ms !== null &&
          ` ${t('It is given {n} ms at most.', { n: kind.timeout_ms })}`}
      </p>
      <SchemaFields
        fields={fieldsOfSchema(kind?.parameters ?? {})}
        prefix={prefix}
        values={check.parameters}
        onChange={set}
      />
      {kind?.takes_credentials && (
        <SchemaFields
          fields={[{ name: 'credentials', required: false, schema: { type: 'object' } }]}
          prefix={prefix}
          values={check.parameters}
          onChange={set}
        />
      )}
      <label className="choice">
        <input
          type="checkbox"
          checked={check.is_enabled}
          onChange={(event) => onChange({ ...check, is_enabled: event.target.checked })}
        />
        <span>{t('Switched on')}</span>
      </label>
    </section>
  );
}

/** Whether a service of others judges. */
const isHosted = ({ id, takes_credentials: signsIn }: Catalogue[number]) => signsIn || !/^(default|gateway)\./.test(id);

function AddCheck({ catalogue, first, onAdd }: { catalogue: Catalogue; first: boolean; onAdd: (id: string) => void }) {
  const [chosen, setChosen] = useState('gateway.pii');
  const ours = catalogue.filter((kind) => !isHosted(kind));
  const others = catalogue.filter(isHosted);
  const options = (list: Catalogue) =>
    list
      .map(({ id }) => ({ id, name: checkName(id) }))
      .sort((a, b) => a.name.localeCompare(b.name))
      .map(({ id, name }) => (
        <option key={id} value={id}>
          {name}
        </option>
      ));
  return (
    <div className="row wrap add-check">
      <label className="inline-field">
        <span>{first ? t('First check') : t('Another check')}</span>
        <select value={chosen} onChange={(event) => setChosen(event.target.value)}>
          <optgroup label={t('Judged here')}>{options(ours)}</optgroup>
          <optgroup label={t('Judged by a service')}>{options(others)}</optgroup>
        </select>
      </label>
      <button type="button" className="button small" onClick={() => onAdd(chosen)}>
        <Plus size={15} aria-hidden="true" /> {t('Add the check')}
      </button>
    </div>
  );
}

function Actions({ form, onChange }: { form: GuardrailForm; onChange: (form: GuardrailForm) => void }) {
  const way = form.async ? 'watch' : form.deny ? 'deny' : 'mark';
  const ways = [
    ['deny', t('Refuse with 446')],
    ['mark', t('Let it pass with status 246')],
    ['watch', t('Only note it, beside the request')],
  ] as const;
  return (
    <>
      <fieldset className="choices">
        <legend>{t('Where a check fails')}</legend>
        {ways.map(([id, label]) => (
          <label key={id} className="choice">
            <input
              type="radio"
              name="way"
              checked={way === id}
              onChange={() => onChange({ ...form, deny: id === 'deny', async: id === 'watch' })}
            />
            <span>{label}</span>
          </label>
        ))}
      </fieldset>
      <div className="pair">
        <Field name="actions.messages" label={t('Messages that are judged')}>
          {(control) => (
            <select
              {...control}
              value={form.messages}
              onChange={(event) => onChange({ ...form, messages: event.target.value as GuardrailForm['messages'] })}
            >
              <option value="all">{t('all')}</option>
              <option value="new">{t('those since the last answer')}</option>
              <option value="last">{t('the last one')}</option>
            </select>
          )}
        </Field>
        <Field name="actions.stream" label={t('Streams')}>
          {(control) => (
            <select
              {...control}
              value={form.stream}
              onChange={(event) => onChange({ ...form, stream: event.target.value as GuardrailForm['stream'] })}
            >
              <option value="incremental">{t('judged as they pass, where a check can')}</option>
              <option value="buffer">{t('held back until they are judged')}</option>
            </select>
          )}
        </Field>
      </div>
    </>
  );
}
