/** A new config: from the gallery, or from a text. */
import { useState } from 'react';
import { useLocation } from 'wouter';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useHref, useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { parsed } from '../../ui/json.tsx';
import { To } from '../../ui/link.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { useProviders } from '../train/place.tsx';
import { ConfigEditor } from './editor.tsx';
import { recipes } from './words.ts';

const CREATE = 'POST /v1/configs';

export function Page() {
  const workspace = useOneWorkspace();
  const providers = useProviders();
  const [, navigate] = useLocation();
  const href = useHref();
  const gallery = recipes(providers.data?.data[0]?.slug ?? 'sandbox');
  const [chosen, setChosen] = useState<string | null>(null);
  const [name, setName] = useState('');
  const [text, setText] = useState('{\n  "retry": { "attempts": 2 }\n}');
  const create = useWrite(CREATE);
  const body = {
    name: name.trim(),
    config: parsed(text) as { [name: string]: unknown },
    ...(workspace === null ? {} : { workspace_id: workspace.id }),
  };
  return (
    <>
      <p className="crumb">
        <To path="/routing">← {t('Routing')}</To>
      </p>
      <PageHead
        title={t('New config')}
        purpose={
          <>
            {t('Where requests go, and what happens when one fails. In the workspace')}{' '}
            <strong translate="no">{workspace?.name}</strong>.
          </>
        }
      />
      <div className="stack">
        <ul className="recipes" aria-label={t('Gallery')}>
          {gallery.map((one) => (
            <li key={one.id}>
              <button
                type="button"
                className="recipe"
                aria-pressed={chosen === one.id}
                onClick={() => {
                  setChosen(one.id);
                  setName(one.name);
                  setText(JSON.stringify(one.config, null, 2));
                }}
              >
                <strong>{one.name}</strong>
                <span className="muted">{one.what}</span>
              </button>
            </li>
          ))}
        </ul>
        <Card title={t('Config')} id="config">
          <Form
            error={create.error}
            labels={{ name: t('Name'), config: t('Config') }}
            onSubmit={() => create.mutate({ body }, { onSuccess: ({ slug }) => navigate(href(`/routing/${slug}`)) })}
          >
            <Field name="name" label={t('Name')}>
              {(control) => (
                <input {...control} type="text" value={name} onChange={(event) => setName(event.target.value)} />
              )}
            </Field>
            <ConfigEditor text={text} onChange={setText} />
            <div className="form-actions">
              <button type="submit" className="button primary" aria-disabled={create.isPending}>
                {t('Create the config')}
              </button>
              <AsCurl call={{ operation: CREATE, body }} />
            </div>
          </Form>
        </Card>
      </div>
    </>
  );
}
