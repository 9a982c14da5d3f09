import { useQuery } from '@tanstack/react-query';
import { stream } from '../../api/client.ts';
import { t } from '../../app/i18n.ts';
import { Failure, Loading } from '../../ui/states.tsx';
import { usePlace } from './place.tsx';

const LINES = 20;
const MOST = 65_536;

/** The first lines of a file: reading ends there, however long the file is. */
export function Preview({ id, name }: { id: string; name: string }) {
  const { headers } = usePlace();
  const { data, error, refetch } = useQuery<string[], Error>({
    queryKey: ['preview', id, headers],
    queryFn: ({ signal }) => firstLines(id, headers, signal),
  });
  if (error) return <Failure error={error} onRetry={() => void refetch()} />;
  if (!data) return <Loading what={t('the first lines')} rows={3} />;
  if (data.length === 0) return <p className="muted">{t('The file is empty.')}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="code" tabIndex={0} aria-label={t('Text of {name}', { name })}>
      <pre translate="no">
        <code>{data.map((line, index) => `${String(index + 1).padStart(3)}  ${line}`).join('\n')}</code>
      </pre>
    </section>
  );
}

async function firstLines(id: string, headers: Readonly<Record<string, string>>, signal: AbortSignal) {
  const body = await stream('GET /v1/files/{file_id}/content', { path: { file_id: id } }, { headers, signal });
  const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let enough = reader === undefined; !enough; ) {
    const read = await reader?.read();
    text += read?.value ?? '';
    enough = read?.done !== false || text.length > MOST || text.split('\n').length > LINES;
  }
  await reader?.cancel();
  return text
    .slice(0, MOST)
    .split('\n')
    .filter((line) => line.trim() !== '')
    .slice(0, LINES);
}
