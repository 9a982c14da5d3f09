import { useState } from 'react';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { humanName, SchemaFields, type Values } from '../../ui/schema-form.tsx';
import { type AccountDetail, layoutOf } from './words.tsx';

const CHANGE = 'PUT /v1/integrations/{slug}';

/** New secrets in place of those that are stored; all other settings stay. */
export function Rotate({ account }: { account: AccountDetail }) {
  const [open, setOpen] = useState(false);
  const [key, setKey] = useState('');
  const [secrets, setSecrets] = useState<Values>({});
  const kinds = useApi('GET /v1/provider-kinds', {}, { enabled: open });
  const write = useWrite(CHANGE);
  const kind = kinds.data?.data.find(({ id }) => id === account.ai_provider_id);
  const plain = Object.fromEntries(
    Object.entries(account.configurations).filter(([name]) => !name.startsWith('masked_')),
  );
  const layout = kind === undefined ? null : layoutOf(kind, plain);
  const fields =
    layout === null
      ? []
      : [...layout.first, ...layout.more].filter(({ name, secret }) => secret && name !== 'custom_headers');
  const body = {
    ...(key === '' ? {} : { key }),
    ...(Object.keys(secrets).length === 0 ? {} : { configurations: { ...plain, ...secrets } }),
  };
  const done = () => {
    setOpen(false);
    setKey('');
    setSecrets({});
  };
  if (!open) {
    return (
      <div className="row wrap">
        <button type="button" className="button" onClick={() => setOpen(true)}>
          {t('Rotate the credential')}
        </button>
        <span role="status" className="muted">
          {write.isSuccess ? t('The new credential is in use.') : ''}
        </span>
      </div>
    );
  }
  const labels = Object.fromEntries([
    ['key', t('New key')],
    ...fields.map(({ name }) => [`configurations.${name}`, t(humanName(name))]),
  ]);
  return (
    <Form
      error={write.error}
      labels={labels}
      onSubmit={() => write.mutate({ path: { slug: account.slug }, body }, { onSuccess: done })}
    >
      <p className="muted">{t('Requests use the new credential at once. What you leave empty stays as it is.')}</p>
      {layout?.needsKey !== false && (
        <Field name="key" label={t('New key')}>
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
      <SchemaFields
        fields={fields.map((field) => ({ ...field, required: false }))}
        prefix="configurations"
        values={secrets}
        onChange={setSecrets}
      />
      <div className="row wrap">
        <button type="submit" className="button primary" aria-disabled={write.isPending}>
          {t('Save the credential')}
        </button>
        <button type="button" className="button" onClick={done}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: CHANGE, path: { slug: account.slug }, body: { key: '…' } }} />
      </div>
    </Form>
  );
}
