/** A new guardrail: from a recipe, or from any check. */
import { useState } from 'react';
import { useLocation } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useHref, useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Form } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { GuardrailFields, labelsOf } from './form.tsx';
import { bodyOf, EMPTY, type GuardrailForm, recipes } from './words.ts';

const CREATE = 'POST /v1/guardrails';

export function Page() {
  const catalogue = useApi('GET /v1/guardrails/checks', {});
  const [chosen, setChosen] = useState<string | null>(null);
  const [form, setForm] = useState<GuardrailForm>(EMPTY);
  return (
    <>
      <p className="crumb">
        <To path="/guardrails">← {t('Guardrails')}</To>
      </p>
      <PageHead title={t('New guardrail')} purpose={t('A list of checks, and what happens where one fails.')} />
      {catalogue.error && <Failure error={catalogue.error} onRetry={() => void catalogue.refetch()} />}
      {!catalogue.data && !catalogue.error && <Loading what={t('checks')} />}
      {catalogue.data && (
        <div className="stack">
          <ul className="recipes" aria-label={t('Recipes')}>
            {recipes().map(({ id, name, what, check }) => (
              <li key={id}>
                <button
                  type="button"
                  className="recipe"
                  aria-pressed={chosen === id}
                  onClick={() => {
                    setChosen(id);
                    setForm({ ...EMPTY, name, checks: [check] });
                  }}
                >
                  <strong>{name}</strong>
                  <span className="muted">{what}</span>
                </button>
              </li>
            ))}
          </ul>
          <Card title={t('Checks')} id="checks">
            <Fields key={chosen} form={form} onChange={setForm} catalogue={catalogue.data.data} />
          </Card>
        </div>
      )}
    </>
  );
}

function Fields(props: {
  form: GuardrailForm;
  onChange: (form: GuardrailForm) => void;
  catalogue: Parameters<typeof GuardrailFields>[0]['catalogue'];
}) {
  const { form, onChange, catalogue } = props;
  const can = useCan();
  const workspace = useOneWorkspace();
  const [, navigate] = useLocation();
  const href = useHref();
  const [shared, setShared] = useState(false);
  const create = useWrite(CREATE);
  const body = {
    ...bodyOf(form),
    ...(shared || workspace === null ? {} : { workspace_id: workspace.id }),
  };
  const save = () => create.mutate({ body }, { onSuccess: ({ id }) => navigate(href(`/guardrails/${id}`)) });
  return (
    <Form error={create.error} labels={labelsOf(form, catalogue)} onSubmit={save}>
      <GuardrailFields form={form} catalogue={catalogue} target="llm" onChange={onChange} />
      {can('organisation_guardrails.create') && workspace !== null && (
        <fieldset className="choices">
          <legend>{t('Of whom')}</legend>
          <label className="choice">
            <input type="radio" name="level" checked={!shared} onChange={() => setShared(false)} />
            <span>
              {t('The workspace')} <span translate="no">{workspace.name}</span>
            </span>
          </label>
          <label className="choice">
            <input type="radio" name="level" checked={shared} onChange={() => setShared(true)} />
            <span>{t('The organisation: any workspace can use it')}</span>
          </label>
        </fieldset>
      )}
      <div className="form-actions">
        <button type="submit" className="button primary" aria-disabled={create.isPending}>
          {t('Create and try')}
        </button>
        <AsCurl call={{ operation: CREATE, body }} />
      </div>
    </Form>
  );
}
