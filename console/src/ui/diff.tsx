/** What of an object has changed, field by field. */
import { t } from '../app/i18n.ts';

export interface Change {
  /** Dotted. */
  readonly path: string;
  /** JSON; null where the field was not there. */
  readonly before: string | null;
  readonly after: string | null;
}

/** The leaves of two values that differ, in the order of their paths. A list counts as one leaf. */
export function changesOf(before: unknown, after: unknown): Change[] {
  const [was, is] = [leaves(before), leaves(after)];
  const paths = [...new Set([...was.keys(), ...is.keys()])].sort();
  return paths.flatMap((path) => {
    const pair = { before: was.get(path) ?? null, after: is.get(path) ?? null };
    return pair.before === pair.after ? [] : [{ path, ...pair }];
  });
}

function leaves(value: unknown, path = '', found = new Map<string, string>()): Map<string, string> {
  if (value === null || value === undefined) {
    if (path !== '' && value === null) found.set(path, 'null');
  } else if (typeof value === 'object' && !Array.isArray(value)) {
    for (const [name, one] of Object.entries(value)) leaves(one, path === '' ? name : `${path}.${name}`, found);
  } else {
    found.set(path, JSON.stringify(value));
  }
  return found;
}

export function Diff({ before, after }: { before: unknown; after: unknown }) {
  const changes = changesOf(before, after);
  if (changes.length === 0) return <p className="muted">{t('No field has changed.')}</p>;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard
    <section className="table-box" tabIndex={0} aria-label={t('Changed fields')}>
      <table className="list diff" aria-label={t('Changed fields')}>
        <thead>
          <tr>
            <th scope="col">{t('Field')}</th>
            <th scope="col">{t('Before')}</th>
            <th scope="col">{t('After')}</th>
          </tr>
        </thead>
        <tbody>
          {changes.map(({ path, before: was, after: is }) => (
            <tr key={path}>
              <th scope="row">
                <code>{path}</code>
              </th>
              <td>{was === null ? <span className="muted">{t('none')}</span> : <del>{was}</del>}</td>
              <td>{is === null ? <span className="muted">{t('none')}</span> : <ins>{is}</ins>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
