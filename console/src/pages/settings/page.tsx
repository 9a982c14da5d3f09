/** Settings of the organisation, saved section by section. */
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import { type Option, SECTIONS, type Section } from './sections.ts';

type Settings = Operations['GET /v1/admin/organisation/settings']['answer'];
type Body = Operations['PUT /v1/admin/organisation/settings']['input']['body'];
type Value = string | boolean;

export function Page() {
  const { data, error, refetch } = useApi('GET /v1/admin/organisation/settings', {});
  return (
    <>
      <PageHead
        title={t('Settings')}
        purpose={t('What holds in the whole organisation. A change is in force within a second.')}
        actions={
          <span data-key="curl">
            <AsCurl call={{ operation: 'GET /v1/admin/organisation/settings' }} />
          </span>
        }
      />
      {error && !data && <Failure error={error} onRetry={() => void refetch()} />}
      {!data && !error && <Loading what={t('the settings')} rows={8} />}
      {data && (
        <div className="stack">
          {SECTIONS.map((section) => (
            <SectionForm key={section.id} section={section} settings={data} />
          ))}
        </div>
      )}
    </>
  );
}

/** The stored value of a dotted path, as its control has it. */
function storedOf(settings: Settings, { path, kind }: Option): Value {
  let value: unknown = settings;
  for (const name of path.split('.')) value = (value as Readonly<Record<string, unknown>> | null)?.[name];
  if (kind === 'switch') return value === true || value === 1;
  return value === null || value === undefined ? '' : String(value);
}

/** The body of a change: only what differs. */
function bodyOf(options: readonly Option[], values: Readonly<Record<string, Value>>, settings: Settings): Body {
  const body: Record<string, unknown> = {};
  for (const option of options) {
    const value = values[option.path];
    if (value === undefined || value === storedOf(settings, option)) continue;
    const sent =
      option.kind === 'switch' ? (option.number ? Number(value) : value) : value === '' ? null : Number(value);
    const [first = '', second] = option.path.split('.');
    if (second === undefined) body[first] = sent;
    else body[first] = { ...(body[first] as object | undefined), [second]: sent };
  }
  return body as Body;
}

function SectionForm({ section, settings }: { section: Section; settings: Settings }) {
  const { id, title, help, options } = section;
  const may = useCan()('organisation_settings.update');
  const [values, setValues] = useState<Readonly<Record<string, Value>>>({});
  const write = useWrite('PUT /v1/admin/organisation/settings');
  const body = bodyOf(options, values, settings);
  const changed = Object.keys(body ?? {}).length > 0;
  const set = (path: string, value: Value) => {
    write.reset();
    setValues({ ...values, [path]: value });
  };
  return (
    <Card title={t(title)} id={`section-${id}`}>
      <p className="muted">{t(help)}</p>
      <Form
        error={write.error}
        labels={Object.fromEntries(options.map(({ path, label }) => [path, t(label)]))}
        onSubmit={() => changed && write.mutate({ body }, { onSuccess: () => setValues({}) })}
      >
        <div className={options.every(({ kind }) => kind === 'switch') ? 'switches' : undefined}>
          {options.map((option) => {
            const value = values[option.path] ?? storedOf(settings, option);
            return (
              <Field key={option.path} name={option.path} label={t(option.label)} help={option.help && t(option.help)}>
                {(control) =>
                  option.kind === 'switch' ? (
                    <input
                      {...control}
                      type="checkbox"
                      checked={value === true}
                      disabled={!may}
                      onChange={(event) => set(option.path, event.target.checked)}
                    />
                  ) : (
                    <input
                      {...control}
                      type="number"
                      step="any"
                      value={String(value)}
                      readOnly={!may}
                      onChange={(event) => set(option.path, event.target.value)}
                    />
                  )
                }
              </Field>
            );
          })}
        </div>
        {may ? (
          <div className="row wrap">
            <button type="submit" className="button primary" aria-disabled={!changed || write.isPending}>
              {t('Save this section')}
            </button>
            {changed && <AsCurl call={{ operation: 'PUT /v1/admin/organisation/settings', body }} />}
            <span className="muted" role="status">
              {write.isSuccess && !changed && t('Saved.')}
              {!write.isSuccess && !changed && t('Nothing is changed.')}
            </span>
          </div>
        ) : (
          <p className="muted">{t('Changing it needs organisation_settings.update.')}</p>
        )}
      </Form>
    </Card>
  );
}
