import { useState } from 'react';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { SecretLine } from '../../components/copy.tsx';
import { useSession } from '../../shell/session.tsx';
import { useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { PRESETS, scopesFor } from './presets.ts';

const OPERATION = 'POST /v1/api-keys/{type}/{subType}';

/** Makes a key of a workspace and shows its secret once; `onMade` gets it, too. */
export function NewKey(props: { onClose: () => void; onMade?: (made: { id: string; key: string }) => void }) {
  const { onClose, onMade } = props;
  const { session } = useSession();
  const workspace = useOneWorkspace();
  const [workspaceId, setWorkspaceId] = useState(workspace?.id ?? '');
  const [name, setName] = useState('');
  const [preset, setPreset] = useState(PRESETS[0]?.id ?? '');
  const [budget, setBudget] = useState('');
  const [stored, setStored] = useState(false);
  const write = useWrite(OPERATION);
  const chosen = PRESETS.find(({ id }) => id === preset);
  const input = {
    path: { type: 'workspace' as const, subType: 'service' as const },
    body: {
      name: name.trim(),
      workspace_id: workspaceId,
      scopes: chosen ? scopesFor(chosen, session.scopes) : [],
      ...(budget === '' ? {} : { usage_limits: { credit_limit: Number(budget), periodic_reset: 'monthly' as const } }),
    },
  };
  if (write.data) {
    return (
      <Dialog title={t('The key is made')} closable={false} onClose={onClose}>
        <p>{t('This is the only time that Sluice shows it. Store it now.')}</p>
        <SecretLine label={t('API key')} value={write.data.key} onCopied={() => setStored(true)} />
        <label className="choice">
          <input type="checkbox" checked={stored} onChange={(event) => setStored(event.target.checked)} />
          <span>{t('I stored it')}</span>
        </label>
        <div className="row">
          <button type="button" className="button primary" aria-disabled={!stored} onClick={() => stored && onClose()}>
            {t('Done')}
          </button>
          {!stored && <span className="muted">{t('Copy it or tick the box first.')}</span>}
        </div>
      </Dialog>
    );
  }
  return (
    <Dialog title={t('New API key')} onClose={onClose}>
      <Form
        error={write.error}
        labels={{ name: t('Name'), workspace_id: t('Workspace'), scopes: t('Rights'), usage_limits: t('Budget') }}
        onSubmit={() => write.mutate(input, { onSuccess: ({ id, key }) => onMade?.({ id, key }) })}
      >
        <Field name="name" label={t('Name')} help={t('What calls with it: checkout, nightly report.')}>
          {(control) => (
            <input {...control} type="text" required value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <Field name="workspace_id" label={t('Workspace')}>
          {(control) => (
            <select {...control} value={workspaceId} onChange={(event) => setWorkspaceId(event.target.value)}>
              {session.workspaces.map((one) => (
                <option key={one.id} value={one.id}>
                  {one.name}
                </option>
              ))}
            </select>
          )}
        </Field>
        <fieldset className="choices">
          <legend>{t('Rights')}</legend>
          {PRESETS.map((one) => (
            <label key={one.id} className="choice">
              <input type="radio" name="preset" checked={preset === one.id} onChange={() => setPreset(one.id)} />
              <span>
                <strong>{t(one.label)}</strong> <span className="muted">{t(one.help)}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <Field
          name="usage_limits"
          label={t('Budget in dollars a month')}
          help={t('Empty: no limit of the key itself.')}
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
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Create the key')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: OPERATION, ...input }} />
        </div>
      </Form>
    </Dialog>
  );
}
