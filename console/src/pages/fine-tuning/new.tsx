/** A new job: data, account and model, parameters, and what it would cost, on one page. */
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { useLocation } from 'wouter';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useSession } from '../../shell/session.tsx';
import { useHref, useUrl } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Card, PageHead } from '../../ui/page.tsx';
import { KEPT, pause, useObjects, usePlace, useProviders } from '../train/place.tsx';
import { UploadField } from '../train/upload-field.tsx';
import { ended, Status } from '../train/words.tsx';
import { type DryRun, Plan } from './plan.tsx';

const OPERATION = 'POST /v1/fine_tuning/jobs';
type Body = Operations[typeof OPERATION]['input']['body'];

/** What a field of a hyperparameter says: `auto`, or its number. */
const numberOf = (text: string): 'auto' | number => (text.trim() === '' || text === 'auto' ? 'auto' : Number(text));

export function Page() {
  const [, navigate] = useLocation();
  const href = useHref();
  const { get } = useUrl();
  const { session } = useSession();
  const { workspace } = usePlace();
  const providers = useProviders();
  const [slug, setSlug] = useState('');
  const [model, setModel] = useState('');
  const [suffix, setSuffix] = useState('');
  const [epochs, setEpochs] = useState('auto');
  const [rate, setRate] = useState('auto');
  const [size, setSize] = useState('auto');
  const headers = { 'x-gateway-workspace': workspace?.id ?? '' };
  const [plans, setPlans] = useState<readonly DryRun[]>([]);
  const start = useWrite(OPERATION, headers);
  const account = slug || (providers.data?.data[0]?.slug ?? '');
  const body: Body = {
    model: model.trim(),
    training_file: get('file'),
    ...(get('valid') !== '' && { validation_file: get('valid') }),
    suffix: suffix.trim(),
    hyperparameters: {
      n_epochs: numberOf(epochs),
      learning_rate_multiplier: numberOf(rate),
      batch_size: numberOf(size),
    },
    gateway_options: { 'x-gateway-provider': `@${account}` },
  };
  const dryRun = useMutation<DryRun, Error, Body>({
    mutationFn: async (planned) =>
      (await answer(
        OPERATION,
        { body: planned },
        { csrf: session.csrf_token, headers: { ...headers, 'x-gateway-dry-run': 'true' } },
      )) as unknown as DryRun,
    onSuccess: (plan) => setPlans((before) => [...before.filter((one) => keyOf(one) !== keyOf(plan)), plan].slice(-5)),
  });
  const labels = {
    model: t('Base model'),
    training_file: t('Training file'),
    validation_file: t('Validation file'),
    suffix: t('Name'),
    gateway_options: t('Account'),
    'hyperparameters.n_epochs': t('Epochs'),
    'hyperparameters.learning_rate_multiplier': t('Learning rate'),
    'hyperparameters.batch_size': t('Batch size'),
  };
  const onStart = () =>
    start.mutate({ body }, { onSuccess: ({ id }) => navigate(href(`/fine-tuning/${encodeURIComponent(id)}`)) });
  const text = (name: keyof typeof labels, value: string, onChange: (value: string) => void, help: string) => (
    <Field name={name} label={labels[name]} help={help}>
      {(control) => (
        <input
          {...control}
          aria-required={name === 'model' || name === 'suffix'}
          type="text"
          autoComplete="off"
          spellCheck={false}
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
    </Field>
  );
  return (
    <>
      <p className="crumb">
        <To path="/fine-tuning">← {t('Fine-tuning')}</To>
      </p>
      <PageHead title={t('New fine-tuning job')} purpose={t('Nothing starts before you press Start.')} />
      <Form error={start.error ?? dryRun.error} labels={labels} onSubmit={onStart}>
        <div className="stack">
          <Card title={t('1. Data')} id="data">
            <FileField name="training_file" label={labels.training_file} param="file" />
            <FileField name="validation_file" label={labels.validation_file} param="valid" />
          </Card>
          <Card title={t('2. Account and model')} id="account">
            <Field name="gateway_options" label={labels.gateway_options}>
              {(control) => (
                <select {...control} value={account} onChange={(event) => setSlug(event.target.value)}>
                  {(providers.data?.data ?? []).map((one) => (
                    <option key={one.slug} value={one.slug} translate="no">
                      @{one.slug}
                    </option>
                  ))}
                </select>
              )}
            </Field>
            {text('model', model, setModel, t('Required. As the provider names it; in the sandbox: echo.'))}
            {text('suffix', suffix, setSuffix, t('Required. A part of the name of the new model.'))}
          </Card>
          <Card title={t('3. Parameters')} id="parameters">
            {text(
              'hyperparameters.n_epochs',
              epochs,
              setEpochs,
              t('How often each row trains. auto: the provider decides.'),
            )}
            {text('hyperparameters.learning_rate_multiplier', rate, setRate, t('A factor above 0, or auto.'))}
            {text('hyperparameters.batch_size', size, setSize, t('Rows of one step, or auto.'))}
          </Card>
          <Card title={t('4. Review')} id="review">
            {plans.length === 0 ? (
              <p className="muted">
                {t('A dry run checks each row and estimates cost and time. Run one for each account that you compare.')}
              </p>
            ) : (
              <Plan plans={plans} />
            )}
            <div className="row wrap">
              <button
                type="button"
                className="button"
                aria-disabled={dryRun.isPending}
                onClick={() => dryRun.mutate(body)}
              >
                {dryRun.isPending ? t('Checking…') : t('Dry run')}
              </button>
              <button type="submit" className="button primary" aria-disabled={start.isPending}>
                {t('Start')}
              </button>
              <AsCurl call={{ operation: OPERATION, body }} />
            </div>
          </Card>
        </div>
      </Form>
    </>
  );
}

const keyOf = ({ target }: DryRun): string => `${target.slug}/${target.model}`;

/** A file that Sluice keeps, chosen or uploaded here. */
function FileField({ name, label, param }: { name: string; label: string; param: string }) {
  const { get, set } = useUrl();
  const { workspace } = usePlace();
  const files = useObjects('GET /v1/files', { purpose: 'fine-tune' });
  const id = get(param);
  const own = useApi(
    'GET /v1/files/{file_id}',
    { path: { file_id: id } },
    {
      enabled: id !== '',
      headers: { 'x-gateway-workspace': workspace?.id ?? '', 'x-gateway-provider': KEPT },
      pollAfter: (found) => (found && !ended(found.status) ? pause(found.created_at) : false),
    },
  );
  const [uploads, setUploads] = useState(false);
  const file = id === '' ? undefined : own.data;
  return (
    <>
      <Field name={name} label={label} help={param === 'valid' ? t('Can be left out.') : t('Required.')}>
        {(control) => (
          <select {...control} value={id} onChange={(event) => set({ [param]: event.target.value || null })}>
            <option value="">{t('No file')}</option>
            {file && !files.rows.some((one) => one.id === file.id) && <option value={file.id}>{file.filename}</option>}
            {files.rows.map((one) => (
              <option key={one.id} value={one.id} translate="no">
                {one.filename}
              </option>
            ))}
          </select>
        )}
      </Field>
      {file && (
        <p className="row wrap" role="status">
          <Status status={file.status} />
          <span translate="no">{file.status_details}</span>
        </p>
      )}
      {uploads ? (
        <UploadField
          purpose="fine-tune"
          label={t('{label}: JSONL file', { label })}
          onDone={(made) => {
            set({ [param]: made });
            setUploads(false);
            void files.list.refetch();
          }}
        />
      ) : (
        <button type="button" className="button small" onClick={() => setUploads(true)}>
          {t('Upload')} <span className="visually-hidden">{label}</span>
        </button>
      )}
    </>
  );
}
