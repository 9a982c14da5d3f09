/** One guardrail: its checks, tried beside the form, where it runs, and its end. */
import { useState } from 'react';
import { useLocation, useParams } from 'wouter';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { useHref } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Form } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, Card, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { Attach } from './attach.tsx';
import { GuardrailFields, labelsOf } from './form.tsx';
import { Try } from './try.tsx';
import { bodyOf, type Catalogue, type Detail, formOf } from './words.ts';

const READ = 'GET /v1/guardrails/{guardrailId}';
const CHANGE = 'PUT /v1/guardrails/{guardrailId}';
const DELETE = 'DELETE /v1/guardrails/{guardrailId}';

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  const { data, error, refetch } = useApi(READ, { path: { guardrailId: id } });
  const catalogue = useApi('GET /v1/guardrails/checks', {});
  const failure = error ?? catalogue.error;
  return (
    <>
      <p className="crumb">
        <To path="/guardrails">← {t('Guardrails')}</To>
      </p>
      {!(data && catalogue.data) && (
        <>
          <PageHead title={t('Guardrail')} />
          {failure ? (
            <Failure error={failure} onRetry={() => void Promise.all([refetch(), catalogue.refetch()])} />
          ) : (
            <Loading what={t('the guardrail')} />
          )}
        </>
      )}
      {data && catalogue.data && <Shown key={data.version_id} guardrail={data} catalogue={catalogue.data.data} />}
    </>
  );
}

function Shown({ guardrail, catalogue }: { guardrail: Detail; catalogue: Catalogue }) {
  const can = useCan();
  const [form, setForm] = useState(() => formOf(guardrail));
  const [ends, setEnds] = useState(false);
  const write = useWrite(CHANGE);
  const level = guardrail.workspace_id === null ? 'organisation_guardrails' : 'guardrails';
  const path = { guardrailId: guardrail.id };
  const body = bodyOf(form);
  const unsaved = JSON.stringify(form) !== JSON.stringify(formOf(guardrail));
  return (
    <>
      <PageHead
        title={guardrail.name}
        purpose={
          <span className="row wrap">
            <Badge tone={guardrail.actions.deny && !guardrail.actions.async ? 'bad' : 'warn'}>
              {guardrail.actions.async ? t('only notes') : guardrail.actions.deny ? t('refuses') : t('marks')}
            </Badge>
            <span>{guardrail.workspace_id === null ? t('of the organisation') : t('of one workspace')}</span>
            <code>{guardrail.slug}</code>
          </span>
        }
        actions={
          <>
            <AsCurl call={{ operation: READ, path }} />
            {can(`${level}.delete`) && (
              <button type="button" className="button stop" onClick={() => setEnds(true)}>
                {t('Delete')}
              </button>
            )}
          </>
        }
      />
      <div className="columns even">
        <Card title={t('Checks')} id="checks">
          <Form
            error={write.error}
            labels={labelsOf(form, catalogue)}
            onSubmit={() => write.mutate({ path, body: { ...body, actions: keptActions(guardrail, body.actions) } })}
          >
            <GuardrailFields form={form} catalogue={catalogue} target={guardrail.target} onChange={setForm} />
            {can(`${level}.update`) && (
              <div className="form-actions">
                <button type="submit" className="button primary" aria-disabled={write.isPending || !unsaved}>
                  {t('Save')}
                </button>
                <AsCurl call={{ operation: CHANGE, path, body }} />
                {!unsaved && <span className="muted">{t('Nothing has changed.')}</span>}
              </div>
            )}
          </Form>
        </Card>
        <div className="stack">
          {can('guardrails.invoke') && <Try guardrail={guardrail} unsaved={unsaved} />}
          <Attach guardrail={guardrail} />
        </div>
      </div>
      {ends && <Delete guardrail={guardrail} onClose={() => setEnds(false)} />}
    </>
  );
}

/** The feedback of verdicts stays: no field shows it. */
const keptActions = ({ actions }: Detail, own: ReturnType<typeof bodyOf>['actions']) => ({
  ...own,
  on_success: actions.on_success,
  on_fail: actions.on_fail,
});

function Delete({ guardrail, onClose }: { guardrail: Detail; onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const write = useWrite(DELETE);
  const input = { path: { guardrailId: guardrail.id } };
  return (
    <Dialog title={t('Delete {name}', { name: guardrail.name })} onClose={onClose}>
      <p>{t('While a config or a default uses it, Sluice keeps it and names what does.')}</p>
      {write.error && <Failure error={write.error} />}
      <div className="row wrap">
        <button
          type="button"
          className="button stop"
          onClick={() => write.mutate(input, { onSuccess: () => navigate(href('/guardrails')) })}
        >
          {t('Delete')}
        </button>
        <button type="button" className="button" onClick={onClose}>
          {t('Cancel')}
        </button>
        <AsCurl call={{ operation: DELETE, ...input }} />
      </div>
    </Dialog>
  );
}
