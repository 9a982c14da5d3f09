import { useState } from 'react';
import { useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { useCan } from '../../shell/session.tsx';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { Field, Form } from '../../ui/form.tsx';
import { lastWeek, SIMULATE, SimulationResult } from './simulation.tsx';

const OPERATION = 'POST /v1/policies/usage-limits';

/** Who shares the budget: what the policy selects, and what has a counter each. */
const SHARES = [
  { id: 'workspace_id', label: 'All requests of the workspace together' },
  { id: 'api_key', label: 'Each API key has its own' },
  { id: 'metadata._user', label: 'Each user has their own' },
  { id: 'model', label: 'Each model has its own' },
] as const;

const TYPES = [
  { id: 'cost', label: 'US dollars' },
  { id: 'tokens', label: 'Tokens' },
  { id: 'requests', label: 'Requests' },
] as const;

const PERIODS = [
  { id: 'monthly', label: 'each month' },
  { id: 'weekly', label: 'each week' },
  { id: '', label: 'in all, never reset' },
] as const;

/** A budget in plain words, tried on the last week before it is saved. */
export function NewBudget({ workspaceId, onClose }: { workspaceId: string; onClose: () => void }) {
  const can = useCan();
  const [name, setName] = useState('');
  const [amount, setAmount] = useState('');
  const [type, setType] = useState<(typeof TYPES)[number]['id']>('cost');
  const [period, setPeriod] = useState<(typeof PERIODS)[number]['id']>('monthly');
  const [share, setShare] = useState<(typeof SHARES)[number]['id']>('workspace_id');
  const [warn, setWarn] = useState('80');
  const [tell, setTell] = useState('');
  const write = useWrite(OPERATION);
  const tried = useWrite(SIMULATE);
  const emails = tell.split(/[\s,;]+/).filter((one) => one !== '');
  const policy = {
    ...(name.trim() !== '' && { name: name.trim() }),
    conditions: [{ key: share, value: share === 'workspace_id' ? workspaceId : '*' }],
    group_by: [{ key: share }],
    type,
    credit_limit: Number(amount),
    ...(warn !== '' && amount !== '' && { alert_threshold: part(Number(amount), Number(warn), type) }),
    ...(period !== '' && { periodic_reset: period }),
    ...(emails.length > 0 && { alert_emails: emails }),
  };
  const body = { workspace_id: workspaceId, ...policy };
  const simulate = () => tried.mutate({ body: { workspace_id: workspaceId, policy, ...lastWeek(Date.now()) } });
  const labels = {
    name: t('Name'),
    credit_limit: t('Amount'),
    type: t('Of what'),
    periodic_reset: t('How often'),
    group_by: t('Who shares it'),
    alert_threshold: t('Warn at percent'),
    alert_emails: t('Whom to warn'),
  };
  return (
    <Dialog title={t('New budget')} onClose={onClose} wide>
      <Form error={write.error} labels={labels} onSubmit={() => write.mutate({ body }, { onSuccess: onClose })}>
        <Field name="name" label={t('Name')} help={t('Refusals name it: Search monthly.')}>
          {(control) => (
            <input {...control} type="text" value={name} onChange={(event) => setName(event.target.value)} />
          )}
        </Field>
        <div className="pair">
          <Field name="credit_limit" label={t('Amount')}>
            {(control) => (
              <input
                {...control}
                type="number"
                min="0"
                step="any"
                value={amount}
                onChange={(event) => setAmount(event.target.value)}
              />
            )}
          </Field>
          <Choice name="type" label={t('Of what')} options={TYPES} value={type} onChange={setType} />
        </div>
        <div className="pair">
          <Choice name="periodic_reset" label={t('How often')} options={PERIODS} value={period} onChange={setPeriod} />
          <Choice name="group_by" label={t('Who shares it')} options={SHARES} value={share} onChange={setShare} />
        </div>
        <div className="pair">
          <Field name="alert_threshold" label={t('Warn at percent')} help={t('Empty: no warning.')}>
            {(control) => (
              <input
                {...control}
                type="number"
                min="1"
                max="99"
                value={warn}
                onChange={(event) => setWarn(event.target.value)}
              />
            )}
          </Field>
          <Field name="alert_emails" label={t('Whom to warn')} help={t('E-mail addresses, with commas between them.')}>
            {(control) => (
              <input {...control} type="text" value={tell} onChange={(event) => setTell(event.target.value)} />
            )}
          </Field>
        </div>
        <SimulationResult tried={tried} />
        <div className="row wrap">
          <button type="submit" className="button primary" aria-disabled={write.isPending}>
            {t('Create the budget')}
          </button>
          {can('policies.read') && (
            <button type="button" className="button" aria-disabled={tried.isPending} onClick={simulate}>
              {t('Simulate')}
            </button>
          )}
          <button type="button" className="button" onClick={onClose}>
            {t('Cancel')}
          </button>
          <AsCurl call={{ operation: OPERATION, body }} />
        </div>
      </Form>
    </Dialog>
  );
}

const MICROS = 1_000_000;

/** So many percent of an amount, in whole micro-dollars or units. */
export const part = (whole: number, percent: number, type: string): number =>
  type === 'cost'
    ? Math.floor((Math.round(whole * MICROS) * percent) / 100) / MICROS
    : Math.floor((whole * percent) / 100);

function Choice<T extends string>(props: {
  name: string;
  label: string;
  options: readonly { readonly id: T; readonly label: string }[];
  value: T;
  onChange: (value: T) => void;
}) {
  const { name, label, options, value, onChange } = props;
  return (
    <Field name={name} label={label}>
      {(control) => (
        <select
          {...control}
          value={value}
          onChange={(event) => {
            const chosen = options.find(({ id }) => id === event.target.value);
            if (chosen) onChange(chosen.id);
          }}
        >
          {options.map((one) => (
            <option key={one.id} value={one.id}>
              {t(one.label)}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
