/** The same call from a terminal: the console teaches the API. */
import { Terminal } from 'lucide-react';
import { t } from '../app/i18n.ts';
import { CodeBlock } from '../components/copy.tsx';
import { useSession } from '../shell/session.tsx';
import { Popover } from './menu.tsx';

export interface Call {
  /** `GET /v1/logs` */
  readonly operation: string;
  readonly path?: Readonly<Record<string, string>>;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

/** A curl command for the call, with the key as `$SLUICE_API_KEY`. `base` is the address of the server with `/v1`. */
export function curlOf(base: string, { operation, path = {}, query = {}, body, headers = {} }: Call): string {
  const [method = 'GET', template = ''] = operation.split(' ');
  const filled = template.replace(/\{(\w+)\}/g, (_all, name: string) => encodeURIComponent(path[name] ?? ''));
  const entries = Object.entries(query).filter(([, value]) => value !== undefined && value !== '');
  const search = new URLSearchParams(entries.map(([name, value]) => [name, String(value)]));
  const url = `${base.replace(/\/v1$/, '')}${filled}${search.size === 0 ? '' : `?${search}`}`;
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  return [
    `curl ${method === 'GET' ? '' : `-X ${method} `}${quote(url)}`,
    '-H "x-gateway-api-key: $SLUICE_API_KEY"',
    ...Object.entries(headers).map(([name, value]) => `-H ${quote(`${name}: ${value}`)}`),
    ...(body === undefined
      ? []
      : ["-H 'content-type: application/json'", `-d ${quote(JSON.stringify(body, null, 2))}`]),
  ].join(' \\\n  ');
}

/** The button "as curl". */
export function AsCurl({ call }: { call: Call }) {
  const { session } = useSession();
  return (
    <Popover
      align="end"
      label={
        <>
          <Terminal size={15} aria-hidden="true" /> {t('as curl')}
        </>
      }
    >
      {() => (
        <div className="curl">
          <p className="muted">{t('The same call with an API key in SLUICE_API_KEY:')}</p>
          <CodeBlock code={curlOf(session.base_url, call)} what={t('the command')} />
        </div>
      )}
    </Popover>
  );
}
