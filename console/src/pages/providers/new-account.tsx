/** A new account: a kind, and the fields of that kind alone. */
import { useState } from 'react';
import { useLocation } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useHref, useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { humanName, SchemaFields, type Values } from '../../ui/schema-form.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { type Kind, kindName, layoutOf, settingsOf } from './words.tsx';

const CREATE = 'POST /v1/integrations';

export function NewAccount({ onClose }: { onClose: () => void }) {
  const kinds = useApi('GET /v1/provider-kinds', {});
  const [kind, setKind] = useState('openai');
  const found = kinds.data?.data.find(({ id }) => id === kind);
  return (
    <Dialog title={t('New account')} onClose={onClose} wide>
      {kinds.error && <Failure error={kinds.error} onRetry={() => void kinds.refetch()} />}
      {!kinds.data && !kinds.error && <Loading what={t('kinds of accounts')} rows={4} />}
      {found && <Fields key={kind} kind={found} kinds={kinds.data?.data ?? []} onKind={setKind} onClose={onClose} />}
    </Dialog>
  );
}

function Fields(props: { kind: Kind; kinds: readonly Kind[]; onKind: (id: string) => void; onClose: () => void }) {
  const { kind, kinds, onKind, onClose } = props;
  const can = useCan();
  const workspace = useOneWorkspace();
  const [, navigate] = useLocation();
  const href = useHref();
  const [name, setName] = useState(kindName(kind.id));
  const [key, setKey] = useState('');
  const [settings, setSettings] = useState<Values>({});
  const [shared, setShared] = useState(can('organisation_integrations.create'));
  const [used, setUsed] = useState(true);
  const create = useWrite(CREATE);
  const use = useWrite('POST /v1/providers');
  const { needsKey, first, more } = layoutOf(kind, settings);
  const body = {
    name: name.trim(),
    ai_provider_id: kind.id,
    ...(key === '' ? {} : { key }),
    configurations: { ...settingsOf(kind, settings) },
    ...(shared || workspace === null ? {} : { workspace_id: workspace.id }),
  };
  const save = async () => {
    const made = create.data ?? (await create.mutateAsync({ body }));
    if (shared && used && workspace !== null) {
      await use.mutateAsync({ body: { name: body.name, integration_id: made.slug, workspace_id: workspace.id } });
    }
    navigate(href(`/providers/${made.slug}`));
  };
  const labels = Object.fromEntries([
    ['name', t('Name')],
    ['key', t('Key')],
    ['slug', t('Name')],
    ...[...first, ...more].map((field) => [`configurations.${field.name}`, t(humanName(field.name))]),
  ]);
  return (
    <Form error={create.error ?? use.error} labels={labels} onSubmit={() => void save().catch(() => undefined)}>
      <div className="pair">
        <Field name="ai_provider_id" label={t('Kind')}>
          {(control) => (
            <select {...control} value={kind.id} onChange={(event) => onKind(event.target.value)}>
              {kinds.map(({ id }) => (
                <option key={id} value={id} translate="no">
                  {kindName(id)}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field name="name" label={t('Name')}>
          {(control) => (
            <input {...control} type="text" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
      </div>
      {needsKey && (
        <Field name="key" label={t('Key')} help={t('Stored sealed. Later only a mask of it is shown.')}>
          {(control) => (
            <input
              {...control}
              type="password"
              autoComplete="off"
              value={key}
              onChange={(event) => setKey(event.target.value)}
            />
          )}
        </Field>
      )}
      <SchemaFields fields={first} prefix="configurations" values={settings} onChange={setSettings} />
      {more.length > 0 && (
        <details className="more">
          <summary>{t('More settings')}</summary>
          <SchemaFields fields={more} prefix="configurations" values={settings} onChange={setSettings} />
        </details>
      )}
      {can('organisation_integrations.create') && workspace !== null && (
        <fieldset className="choices">
          <legend>{t('Who uses it')}</legend>
          <label className="choice">
            <input type="radio" name="level" checked={shared} onChange={() => setShared(true)} />
            <span>{t('The organisation: workspaces share it')}</span>
          </label>
          <label className="choice">
            <input type="radio" name="level" checked={!shared} onChange={() => setShared(false)} />
            <span>
              {t('Only the workspace')} <span translate="no">{workspace.name}</span>
            </span>
          </label>
          {shared && can('providers.create') && (
            <label className="choice">
              <input type="checkbox" checked={used} onChange={(event) => setUsed(event.target.checked)} />
              <span>
                {t('Make it a provider of the workspace')} <span translate="no">{workspace.name}</span>
              </span>
            </label>
          )}
        </fieldset>
      )}
      <div className="form-actions">
        <button type="submit" className="button primary" aria-disabled={create.isPending}>
          {t('Add the account')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: CREATE, body: { ...body, ...(key === '' ? {} : { key: '…' }) } }} />
      </div>
    </Form>
  );
}
