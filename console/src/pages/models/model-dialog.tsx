/** One model: whether it is on, its own price, and a test. */
import { useState } from 'react';
import { useApi, useWrite } from '../../api/queries.ts';
import { duration } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Badge } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';

const CHANGE = 'PUT /v1/integrations/{slug}/models';
const TEST = 'POST /v1/integrations/{slug}/test';
/** The API writes cents for a token, people write dollars for a million of them. */
const PER_MILLION = 10_000;

export function ModelDialog(props: { id: string; workspaceId: string; onClose: () => void }) {
  const { id, workspaceId, onClose } = props;
  const can = useCan();
  const provider = id.slice(1, id.indexOf('/'));
  const model = id.slice(id.indexOf('/') + 1);
  const providers = useApi('GET /v1/providers', { query: { workspace_id: workspaceId, page_size: 100 } });
  const account = providers.data?.data.find(({ slug }) => slug === provider)?.integration_id;
  const may = can('organisation_integrations.read') || can('workspace_integrations.read');
  const models = useApi(
    'GET /v1/integrations/{slug}/models',
    { path: { slug: account ?? '' } },
    { enabled: account !== undefined && may },
  );
  const failure = providers.error ?? models.error;
  const found = models.data?.models.find(({ slug }) => slug === model.toLowerCase());
  return (
    <Dialog title={id} onClose={onClose}>
      <p className="row wrap">
        <To path="/playground" params={{ model: id }}>
          {t('Try it in the Playground')}
        </To>
        <To path="/requests" params={{ virtual_keys: provider, ai_model: model, range: '7d', from: null, to: null }}>
          {t('Its requests')}
        </To>
        {account !== undefined && <To path={`/providers/${account}`}>{t('Its account')}</To>}
      </p>
      {failure && <Failure error={failure} onRetry={() => void models.refetch()} />}
      {providers.data && account === undefined && (
        <p className="muted">{t('The workspace has no such provider any more.')}</p>
      )}
      {account !== undefined && may && !models.data && !models.error && <Loading what={t('the model')} rows={3} />}
      {account !== undefined && models.data && (
        <Settings
          account={account}
          model={model}
          workspaceId={workspaceId}
          enabled={found?.enabled ?? models.data.allow_all_models}
          prices={pricesOf(found?.pricing_config)}
        />
      )}
      <div className="row wrap">
        <button type="button" className="button" onClick={onClose}>
          {t('Close')}
        </button>
      </div>
    </Dialog>
  );
}

interface Prices {
  readonly input: string;
  readonly output: string;
}

function pricesOf(config: unknown): Prices {
  const own = (config as { pay_as_you_go?: Record<string, { price?: number } | undefined> } | null)?.pay_as_you_go;
  const text = (name: string) => {
    const price = own?.[name]?.price;
    return price === undefined ? '' : String(Number((price * PER_MILLION).toFixed(6)));
  };
  return { input: text('request_token'), output: text('response_token') };
}

function Settings(props: { account: string; model: string; workspaceId: string; enabled: boolean; prices: Prices }) {
  const { account, model, workspaceId } = props;
  const can = useCan();
  const [enabled, setEnabled] = useState(props.enabled);
  const [prices, setPrices] = useState(props.prices);
  const write = useWrite(CHANGE);
  const test = useWrite(TEST);
  const path = { slug: account };
  const price = (text: string) => ({ price: Number(text) / PER_MILLION });
  const body = {
    models: [
      {
        slug: model,
        enabled,
        ...(prices.input === '' && prices.output === ''
          ? {}
          : {
              pricing_config: {
                pay_as_you_go: {
                  ...(prices.input === '' ? {} : { request_token: price(prices.input) }),
                  ...(prices.output === '' ? {} : { response_token: price(prices.output) }),
                },
              },
            }),
      },
    ],
  };
  const tried = { path, body: { model, workspace_id: workspaceId } };
  const may = can('organisation_integrations.update') || can('workspace_integrations.update');
  const field = (name: keyof Prices, label: string) => (
    <Field name={`price.${name}`} label={label}>
      {(control) => (
        <input
          {...control}
          type="number"
          min="0"
          step="any"
          value={prices[name]}
          onChange={(event) => setPrices({ ...prices, [name]: event.target.value })}
        />
      )}
    </Field>
  );
  return (
    <Form
      error={write.error}
      labels={{ 'models[0].pricing_config': t('Own price'), models: t('Model') }}
      onSubmit={() => write.mutate({ path, body })}
    >
      <label className="choice">
        <input type="checkbox" checked={enabled} onChange={(event) => setEnabled(event.target.checked)} />
        <span>{t('Requests may use it, in every workspace of the account')}</span>
      </label>
      <div className="pair">
        {field('input', t('Own price, dollars for a million input tokens'))}
        {field('output', t('Own price, dollars for a million output tokens'))}
      </div>
      <p className="muted">{t('Without an own price the published one counts, where there is one.')}</p>
      {may && (
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Save')}
          </button>
          <button type="button" className="button" aria-disabled={test.isPending} onClick={() => test.mutate(tried)}>
            {t('Test with one token')}
          </button>
          <AsCurl call={{ operation: CHANGE, path, body }} />
        </div>
      )}
      <div role="status">
        {write.isSuccess && <p className="muted">{t('Saved.')}</p>}
        {test.data?.success && (
          <Badge tone="ok">{t('It answered after {time}', { time: duration(test.data.latency_ms) })}</Badge>
        )}
        {test.data && !test.data.success && (
          <p className="row wrap">
            <Badge tone="bad">{t('Status {n}', { n: test.data.status })}</Badge>
            <span translate="no">{test.data.message}</span>
          </p>
        )}
      </div>
      {test.error && <Failure error={test.error} />}
    </Form>
  );
}
