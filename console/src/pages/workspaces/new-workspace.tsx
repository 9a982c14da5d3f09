import { useState } from 'react';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { SecretLine } from '../../components/copy.tsx';
import { useSession } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { PRESETS, scopesFor } from '../keys/presets.ts';

/** A workspace with its providers, people, budget and first key, on one screen. */
export function NewWorkspace({ onClose }: { onClose: () => void }) {
  const { session, refresh } = useSession();
  const [name, setName] = useState('');
  const [members, setMembers] = useState<readonly string[]>([]);
  const [budget, setBudget] = useState('');
  const [shared, setShared] = useState<readonly string[]>([]);
  const [withKey, setWithKey] = useState(true);
  const people = useApi('GET /v1/admin/users', { query: { page_size: 100 } });
  const accounts = useApi('GET /v1/integrations', { query: { type: 'organisation', page_size: 100 } });
  const share = useWrite('PUT /v1/integrations/{slug}/workspaces');
  const workspace = useWrite('POST /v1/admin/workspaces');
  const key = useWrite('POST /v1/api-keys/{type}/{subType}');
  const body = {
    name: name.trim(),
    ...(members.length > 0 && { users: [...members] }),
    ...(budget !== '' && { usage_limits: [{ credit_limit: Number(budget), periodic_reset: 'monthly' as const }] }),
  };
  const create = async () => {
    const made = workspace.data ?? (await workspace.mutateAsync({ body }));
    for (const slug of shared) {
      const own = [{ id: made.id, enabled: true, create_default_provider: true }];
      await share.mutateAsync({ path: { slug }, body: { workspaces: own } });
    }
    await refresh();
    const app = PRESETS[0];
    if (!withKey || !app) return onClose();
    await key.mutateAsync({
      path: { type: 'workspace', subType: 'service' },
      body: {
        name: t('{name}: first key', { name: made.name }),
        workspace_id: made.id,
        scopes: scopesFor(app, session.scopes),
      },
    });
  };
  if (key.data && workspace.data) {
    return (
      <Dialog title={t('{name} is ready', { name: workspace.data.name })} closable={false} onClose={onClose}>
        <p>{t('Its first key calls models and nothing else. Sluice shows it this once: store it now.')}</p>
        <SecretLine label={t('API key')} value={key.data.key} onCopied={() => undefined} />
        <button type="button" className="button primary" onClick={onClose}>
          {t('I stored it')}
        </button>
      </Dialog>
    );
  }
  // A refused submit leaves its error on the mutation, which the form shows.
  const submit = () => void create().catch(() => undefined);
  const labels = {
    name: t('Name'),
    users: t('People'),
    usage_limits: t('Budget'),
    'usage_limits.0.credit_limit': t('Budget'),
  };
  return (
    <Dialog title={t('New workspace')} onClose={onClose} wide>
      <Form error={workspace.error ?? share.error ?? key.error} labels={labels} onSubmit={submit}>
        <Field name="name" label={t('Name')} help={t('The team or product that shares a budget.')}>
          {(control) => (
            <input {...control} type="text" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <fieldset className="choices">
          <legend>{t('Providers')}</legend>
          {accounts.data?.data.length === 0 && <p className="muted">{t('The organisation shares no provider yet.')}</p>}
          {(accounts.data?.data ?? []).map((one) => (
            <label key={one.id} className="choice">
              <input
                type="checkbox"
                checked={shared.includes(one.slug)}
                onChange={(event) =>
                  setShared(event.target.checked ? [...shared, one.slug] : shared.filter((slug) => slug !== one.slug))
                }
              />
              <span translate="no">{one.name}</span>
            </label>
          ))}
        </fieldset>
        <fieldset className="choices">
          <legend>{t('People')}</legend>
          {(people.data?.data ?? []).map((one) => (
            <label key={one.id} className="choice">
              <input
                type="checkbox"
                checked={members.includes(one.id)}
                onChange={(event) =>
                  setMembers(event.target.checked ? [...members, one.id] : members.filter((id) => id !== one.id))
                }
              />
              <span translate="no">{one.email}</span>
            </label>
          ))}
        </fieldset>
        <Field
          name="usage_limits"
          label={t('Budget in dollars a month')}
          help={t('Empty: no budget of the workspace itself.')}
        >
          {(control) => (
            <input
              {...control}
              type="number"
              min="0"
              step="any"
              value={budget}
              onChange={(event) => setBudget(event.target.value)}
            />
          )}
        </Field>
        <label className="choice">
          <input type="checkbox" checked={withKey} onChange={(event) => setWithKey(event.target.checked)} />
          <span>{t('Make a first API key for its programs')}</span>
        </label>
        <div className="row wrap">
          <button
            type="submit"
            className="button primary"
            aria-disabled={workspace.isPending || share.isPending || key.isPending}
          >
            {t('Create the workspace')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: 'POST /v1/admin/workspaces', body }} />
        </div>
      </Form>
    </Dialog>
  );
}
