/** Lists of objects: a table on wide screens, cards on narrow ones, with only the rows in sight in the document. */
import { useWindowVirtualizer } from '@tanstack/react-virtual';
import { type MouseEvent, type ReactNode, useLayoutEffect, useRef, useState } from 'react';
import { useLocation } from 'wouter';
import { t } from '../app/i18n.ts';
import { useHref } from '../shell/url-state.ts';
import { useMedia } from './use-media.ts';

export interface Column<Row> {
  readonly id: string;
  readonly header: string;
  /** Numbers: right-aligned, figures of one width. */
  readonly numeric?: boolean;
  /** The cell takes what is left and cuts its text. */
  readonly grow?: boolean;
  readonly cell: (row: Row) => ReactNode;
}

export interface ListTableProps<Row> {
  /** Names the table for screen readers. */
  readonly label: string;
  readonly columns: readonly Column<Row>[];
  readonly rows: readonly Row[];
  readonly keyOf: (row: Row) => string;
  /** Where a click on the row leads; the row's first cell has the link itself. */
  readonly pathOf?: (row: Row) => string;
  /** On narrow screens, in two lines. */
  readonly card: (row: Row) => { readonly head: ReactNode; readonly detail: ReactNode; readonly side?: ReactNode };
  readonly busy?: boolean;
  /** Opens a row in place of going to its page, where the click asks for no new tab. */
  readonly onOpen?: ((row: Row) => void) | undefined;
  /** The key of the row that is open. */
  readonly current?: string;
  /** A box before each row. */
  readonly select?: {
    readonly selected: readonly string[];
    readonly toggle: (key: string) => void;
    readonly label: (row: Row) => string;
  };
}

const ROW_PX = 44;
const CARD_PX = 72;
/** Fewer rows cost less than the arithmetic that leaves them out. */
const VIRTUAL_FROM = 120;

export function ListTable<Row>(props: ListTableProps<Row>) {
  const narrow = useMedia('(max-width: 47.99rem)');
  return narrow ? <Cards {...props} /> : <Table {...props} />;
}

function useRows<Row>(rows: readonly Row[], height: number) {
  const root = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => setTop(root.current?.offsetTop ?? 0), []);
  const all = rows.length < VIRTUAL_FROM;
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => height,
    overscan: 12,
    scrollMargin: top,
    enabled: !all,
  });
  const items = virtual.getVirtualItems();
  const before = all ? 0 : (items[0]?.start ?? top) - top;
  const after = all ? 0 : virtual.getTotalSize() - ((items.at(-1)?.end ?? top) - top);
  const shown = all ? rows.map((row, index) => ({ row, index })) : [];
  if (!all) {
    for (const { index } of items) {
      const row = rows[index];
      if (row !== undefined) shown.push({ row, index });
    }
  }
  return { root, shown, before: Math.max(0, before), after: Math.max(0, after) };
}

function Table<Row>(props: ListTableProps<Row>) {
  const { label, columns, rows, keyOf, pathOf, busy = false, onOpen, current, select } = props;
  const { root, shown, before, after } = useRows(rows, ROW_PX);
  const [, navigate] = useLocation();
  const href = useHref();
  return (
    <div className="table-box" ref={root}>
      <table className="list" aria-label={label} aria-rowcount={rows.length + 1} aria-busy={busy}>
        <thead>
          <tr>
            {select && (
              <th scope="col">
                <span className="visually-hidden">{t('Chosen')}</span>
              </th>
            )}
            {columns.map((column) => (
              <th key={column.id} scope="col" className={column.numeric ? 'number' : undefined}>
                {column.header}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {before > 0 && <Gap height={before} span={columns.length + 1} />}
          {shown.map(({ row, index }) => (
            <tr
              key={keyOf(row)}
              aria-rowindex={index + 2}
              className={pathOf ? 'clickable' : undefined}
              aria-current={current === keyOf(row) ? 'true' : undefined}
              onClickCapture={(event) => {
                if (onOpen && opens(event)) {
                  event.preventDefault();
                  onOpen(row);
                }
              }}
              onClick={(event) => {
                if (!pathOf || (event.target as Element).closest('a, button, input, select, summary')) return;
                if (getSelection()?.toString()) return;
                if (onOpen) onOpen(row);
                else navigate(href(pathOf(row)));
              }}
            >
              {select && (
                <td>
                  <SelectBox row={row} id={keyOf(row)} select={select} />
                </td>
              )}
              {columns.map((column) => (
                <td key={column.id} className={cellClass(column)}>
                  {column.cell(row)}
                </td>
              ))}
            </tr>
          ))}
          {after > 0 && <Gap height={after} span={columns.length + 1} />}
        </tbody>
      </table>
    </div>
  );
}

/** Whether a click is a plain one on the link of a row. */
const opens = (event: MouseEvent): boolean =>
  (event.target as Element).closest('a') !== null &&
  event.button === 0 &&
  !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

function SelectBox<Row>(props: { row: Row; id: string; select: NonNullable<ListTableProps<Row>['select']> }) {
  const { row, id, select } = props;
  return (
    <input
      type="checkbox"
      aria-label={select.label(row)}
      checked={select.selected.includes(id)}
      onChange={() => select.toggle(id)}
    />
  );
}

const cellClass = (column: { numeric?: boolean; grow?: boolean }) =>
  [column.numeric ? 'number' : '', column.grow ? 'grow' : ''].join(' ').trim() || undefined;

const Gap = ({ height, span }: { height: number; span: number }) => (
  <tr>
    <td colSpan={span} style={{ height, padding: 0, border: 0 }} />
  </tr>
);

function Cards<Row>({ label, rows, keyOf, card, busy = false }: ListTableProps<Row>) {
  const { root, shown, before, after } = useRows(rows, CARD_PX);
  return (
    <div ref={root}>
      <ul className="cards" aria-label={label} aria-busy={busy}>
        {before > 0 && <li aria-hidden="true" style={{ height: before }} />}
        {shown.map(({ row }) => {
          const { head, detail, side } = card(row);
          return (
            <li key={keyOf(row)} className="row-card">
              <div className="row-card-main">
                <div className="row-card-head">{head}</div>
                <div className="row-card-detail">{detail}</div>
              </div>
              {side !== undefined && <div className="row-card-side">{side}</div>}
            </li>
          );
        })}
        {after > 0 && <li aria-hidden="true" style={{ height: after }} />}
      </ul>
    </div>
  );
}

/** Below a list: what is shown of how many, and the way to more. */
export function ListFooter(props: {
  shown: number;
  /** `12,430`, or `10,000+`; null where it is not known. */
  total: string | null;
  note?: string;
  more: boolean;
  loading: boolean;
  onMore: () => void;
}) {
  const { shown, total, note, more, loading, onMore } = props;
  const range = total === null ? t('1–{shown}', { shown }) : t('1–{shown} of {total}', { shown, total });
  return (
    <div className="list-footer">
      <p className="muted" role="status">
        {shown === 0 ? '' : range}
        {note ? ` · ${note}` : ''}
      </p>
      {more && (
        <button type="button" className="button" onClick={onMore} aria-disabled={loading}>
          {loading ? t('Loading…') : t('Load more')}
        </button>
      )}
    </div>
  );
}
