import { useState } from 'react';
import { useLocation } from 'wouter';
import type { Operations } from '../../../types/api.ts';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useHref, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { KEPT, useObjects, usePlace, useProviders } from '../train/place.tsx';
import { UploadField } from '../train/upload-field.tsx';

const OPERATION = 'POST /v1/batches';
type Body = Operations[typeof OPERATION]['input']['body'];
const ENDPOINTS = ['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses'] as const;

/** Starts a batch from a file that Sluice keeps. */
export function NewBatch({ onClose }: { onClose: () => void }) {
  const [, navigate] = useLocation();
  const href = useHref();
  const { get, set } = useUrl();
  const { workspace } = usePlace();
  const providers = useProviders();
  const files = useObjects('GET /v1/files', { purpose: 'batch' });
  const write = useWrite(OPERATION, { 'x-gateway-workspace': workspace?.id ?? '', 'x-gateway-provider': KEPT });
  const [endpoint, setEndpoint] = useState<Body['endpoint']>(ENDPOINTS[0]);
  const [model, setModel] = useState('');
  const [slug, setSlug] = useState('');
  const [window, setWindow] = useState<Body['completion_window']>('immediate');
  const chosen = slug || (providers.data?.data[0]?.slug ?? '');
  const body: Body = {
    input_file_id: get('file'),
    endpoint,
    completion_window: window,
    ...(model.trim() !== '' && { model: model.trim() }),
    gateway_options: { 'x-gateway-provider': `@${chosen}` },
  };
  const start = () =>
    write.mutate({ body }, { onSuccess: ({ id }) => navigate(href(`/batches/${encodeURIComponent(id)}`)) });
  const labels = {
    input_file_id: t('File'),
    endpoint: t('Endpoint'),
    model: t('Model'),
    gateway_options: t('Account'),
  };
  return (
    <Dialog title={t('New batch')} onClose={onClose} wide>
      <Form error={write.error} labels={labels} onSubmit={start}>
        <Field name="input_file_id" label={t('File')} help={t('Each line is one request.')}>
          {(control) => (
            <select {...control} value={get('file')} onChange={(event) => set({ file: event.target.value })}>
              <option value="">{t('Choose a file')}</option>
              {files.rows.map(({ id, filename }) => (
                <option key={id} value={id} translate="no">
                  {filename}
                </option>
              ))}
            </select>
          )}
        </Field>
        <UploadField
          purpose="batch"
          label={t('Or upload one')}
          onDone={(id) => {
            set({ file: id });
            void files.list.refetch();
          }}
        />
        <Field name="endpoint" label={t('Endpoint')}>
          {(control) => (
            <select
              {...control}
              value={endpoint}
              onChange={(event) => setEndpoint(event.target.value as Body['endpoint'])}
            >
              {ENDPOINTS.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          )}
        </Field>
        <Field name="gateway_options" label={t('Account')}>
          {(control) => (
            <select {...control} value={chosen} onChange={(event) => setSlug(event.target.value)}>
              {(providers.data?.data ?? []).map((one) => (
                <option key={one.slug} value={one.slug} translate="no">
                  @{one.slug}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field name="model" label={t('Model')} help={t('For lines that name none.')}>
          {(control) => (
            <input {...control} type="text" value={model} onChange={(event) => setModel(event.target.value)} />
          )}
        </Field>
        <Field name="completion_window" label={t('When')}>
          {(control) => (
            <select
              {...control}
              value={window}
              onChange={(event) => setWindow(event.target.value as Body['completion_window'])}
            >
              <option value="immediate">{t('Now: Sluice sends the requests')}</option>
              <option value="24h">{t('Within a day: the provider’s own batches')}</option>
            </select>
          )}
        </Field>
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Start the batch')}
          </button>
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: OPERATION, body }} />
        </div>
      </Form>
    </Dialog>
  );
}
