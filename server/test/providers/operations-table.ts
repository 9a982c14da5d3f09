import type { OperationId } from '../../src/operations/operation.ts';
import { bindingFor } from '../../src/providers/binding.ts';
import { PROVIDERS } from '../../src/providers/catalog.ts';
import type { Bindings, Provider } from '../../src/providers/provider.ts';

/** Columns of the table, by the operations they stand for. */
const COLUMNS: readonly (readonly [title: string, operation: OperationId])[] = [
  ['chat', 'chat'],
  ['messages', 'messages'],
  ['responses', 'responses'],
  ['completions', 'completions'],
  ['count', 'count_tokens'],
  ['embed', 'embeddings'],
  ['rerank', 'rerank'],
  ['moderate', 'moderations'],
  ['image', 'images_generate'],
  ['edit', 'images_edit'],
  ['vary', 'images_vary'],
  ['speech', 'speech'],
  ['transcribe', 'transcribe'],
  ['translate', 'translate'],
  ['models', 'models'],
  ['others', 'proxy'],
];

export const AS_IT_IS = '●';
export const ADAPTED = '◐';
export const CONVERTED = '○';

function markOf(provider: Provider, bindings: Bindings, operation: OperationId): string {
  const { bindingsOf: _bindingsOf, ...rest } = provider;
  const bound = bindingFor({ ...rest, bindings }, operation);
  if (bound === null) return '';
  if (bound.convert !== null) return CONVERTED;
  const own = bound.request ?? bound.response ?? bound.stream;
  return own === undefined ? AS_IT_IS : ADAPTED;
}

/** The mark of a provider, with a `*` where it depends on the model or the account. */
function cellOf(provider: Provider, operation: OperationId): string {
  const tables = Object.values(provider.allBindings ?? { all: provider.bindings });
  const marks = tables.map((bindings) => markOf(provider, bindings, operation));
  const [best = ''] = [AS_IT_IS, ADAPTED, CONVERTED].filter((mark) => marks.includes(mark));
  return best === '' || marks.every((mark) => mark === best) ? best : `${best} \\*`;
}

function objectsOf({ training }: Provider): string {
  const kinds = [training?.files && 'files', training?.batches && 'batches', training?.jobs && 'jobs'];
  return kinds.filter((kind) => typeof kind === 'string').join(', ');
}

/** Which provider serves which operation, as a table of the guide, from the bindings themselves. */
export function operationsTable(): string {
  const head = ['Provider', ...COLUMNS.map(([title]) => title), 'objects'];
  const rows = [...PROVIDERS.values()]
    .filter(({ local }) => local === undefined)
    .map((provider) => [
      `\`${provider.id}\``,
      ...COLUMNS.map(([, operation]) => cellOf(provider, operation)),
      objectsOf(provider),
    ])
    .sort(([a = ''], [b = '']) => (a < b ? -1 : 1));
  const widths = head.map((title, at) => Math.max(title.length, ...rows.map((row) => row[at]?.length ?? 0)));
  const line = (cells: readonly string[], fill = ' '): string =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at] ?? 0, fill)).join(' | ')} |`;
  return [
    line(head),
    line(
      head.map(() => ''),
      '-',
    ),
    ...rows.map((row) => line(row)),
  ].join('\n');
}
