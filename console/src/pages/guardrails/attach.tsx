/** Where a guardrail runs: on all requests or answers of the organisation or of a workspace, or where a config names it. */
import { useApi, useWrite } from '../../api/queries.ts';
import { t } from '../../app/i18n.ts';
import { CodeBlock } from '../../components/copy.tsx';
import { useCan, useSession } from '../../shell/session.tsx';
import { useOneWorkspace } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Card } from '../../ui/page.tsx';
import { Failure, Loading } from '../../ui/states.tsx';
import type { Detail } from './words.ts';

const DEFAULTS = 'PUT /v1/admin/organisation/defaults';
const WORKSPACE = 'PUT /v1/admin/workspaces/{workspaceId}';

type Direction = 'input_guardrails' | 'output_guardrails';

export function Attach({ guardrail }: { guardrail: Detail }) {
  const can = useCan();
  const workspace = useOneWorkspace();
  const { session } = useSession();
  const own = guardrail.workspace_id;
  const place = own === null ? workspace : (session.workspaces.find(({ id }) => id === own) ?? null);
  const mayOrganisation = own === null && can('organisation_settings.read');
  return (
    <Card title={t('Where it runs')} id="attach">
      {mayOrganisation && <OfOrganisation guardrail={guardrail} />}
      {place !== null && can('workspaces.read') && (
        <OfWorkspace guardrail={guardrail} workspaceId={place.id} name={place.name} />
      )}
      <details className="more">
        <summary>{t('On the requests of a config')}</summary>
        <p className="muted">{t('Name it in the config, or in one of its targets:')}</p>
        <CodeBlock code={`"input_guardrails": ["${guardrail.slug}"]`} what={t('the line of the config')} />
      </details>
      {own === null && (
        <details className="more">
          <summary>{t('Workspaces that are exempt')}</summary>
          <p className="muted">
            {t(
              'A key of the organisation exempts a workspace from all guardrails that the organisation runs by default.',
            )}
          </p>
          <AsCurl
            call={{
              operation: 'PUT /v1/workspace-exclusions/input-guardrails',
              body: { workspaces: [{ workspace_id: workspace?.slug ?? '', excluded: true }] },
            }}
          />
        </details>
      )}
    </Card>
  );
}

function OfOrganisation({ guardrail }: { guardrail: Detail }) {
  const can = useCan();
  const defaults = useApi('GET /v1/admin/organisation/defaults', {});
  const write = useWrite(DEFAULTS);
  if (defaults.error) return <Failure error={defaults.error} onRetry={() => void defaults.refetch()} />;
  const { data } = defaults;
  if (data === undefined) return <Loading what={t('the defaults of the organisation')} rows={2} />;
  const names = (direction: Direction) => data[direction].map(({ slug }) => slug);
  return (
    <Switches
      title={t('In the whole organisation')}
      isOn={(direction) => names(direction).includes(guardrail.slug)}
      onSet={(direction, on) => {
        const others = names(direction).filter((slug) => slug !== guardrail.slug);
        write.mutate({ body: { [direction]: on ? [...others, guardrail.slug] : others } });
      }}
      locked={!can('organisation_settings.update')}
      error={write.error}
    />
  );
}

function OfWorkspace({ guardrail, workspaceId, name }: { guardrail: Detail; workspaceId: string; name: string }) {
  const can = useCan();
  const path = { workspaceId };
  const workspace = useApi('GET /v1/admin/workspaces/{workspaceId}', { path });
  const write = useWrite(WORKSPACE);
  if (workspace.error) return <Failure error={workspace.error} onRetry={() => void workspace.refetch()} />;
  if (workspace.data === undefined) return <Loading what={t('the defaults of the workspace')} rows={2} />;
  const { defaults } = workspace.data;
  const isThis = (one: string) => one === guardrail.slug || one === guardrail.id;
  const names = (direction: Direction) => defaults?.[direction] ?? [];
  return (
    <Switches
      title={t('In the workspace {name}', { name })}
      isOn={(direction) => names(direction).some(isThis)}
      onSet={(direction, on) => {
        const others = names(direction).filter((one) => !isThis(one));
        write.mutate({ path, body: { defaults: { [direction]: on ? [...others, guardrail.slug] : others } } });
      }}
      locked={!can('workspaces.update')}
      error={write.error}
    />
  );
}

function Switches(props: {
  title: string;
  isOn: (direction: Direction) => boolean;
  onSet: (direction: Direction, on: boolean) => void;
  locked: boolean;
  error: unknown;
}) {
  const { title, isOn, onSet, locked, error } = props;
  const directions = [
    ['input_guardrails', t('on every request')],
    ['output_guardrails', t('on every answer')],
  ] as const;
  return (
    <fieldset className="choices">
      <legend>{title}</legend>
      {directions.map(([direction, label]) => (
        <label key={direction} className="choice">
          <input
            type="checkbox"
            checked={isOn(direction)}
            disabled={locked}
            onChange={(event) => onSet(direction, event.target.checked)}
          />
          <span>{label}</span>
        </label>
      ))}
      {error !== null && error !== undefined && <Failure error={error} />}
    </fieldset>
  );
}
