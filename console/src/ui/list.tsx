/** The parts that every page of a list has: failure, loading, nothing there, rows and how many. */
import type { ReactNode } from 'react';
import { count } from '../app/format.ts';
import { Refreshing } from './page.tsx';
import { Failure, Loading, NoMatch, Stale } from './states.tsx';
import { ListFooter, ListTable, type ListTableProps } from './table.tsx';

/** Of react-query, as far as a list needs it. */
interface Asked {
  readonly isError: boolean;
  readonly isLoading: boolean;
  readonly isSuccess: boolean;
  readonly isFetching: boolean;
  readonly isFetchingNextPage: boolean;
  readonly hasNextPage: boolean;
  readonly error: Error | null;
  readonly dataUpdatedAt: number;
  readonly refetch: () => unknown;
  readonly fetchNextPage: () => unknown;
}

export function ListBody<Row>(
  props: ListTableProps<Row> & {
    /** What is listed, in the plural. */
    what: string;
    list: Asked;
    /** Null where the server does not count. */
    total: number | null;
    /** Number of filters that are set. */
    filters?: number;
    onClear?: () => void;
    empty: ReactNode;
  },
) {
  const { what, list, total, filters = 0, onClear, empty, ...table } = props;
  const { rows } = table;
  if (rows.length === 0) {
    if (list.isError) return <Failure error={list.error} onRetry={() => void list.refetch()} />;
    if (list.isLoading) return <Loading what={what} />;
    if (!list.isSuccess) return null;
    return filters > 0 && onClear ? <NoMatch what={what} filters={filters} onClear={onClear} /> : empty;
  }
  return (
    <>
      {list.isError && (
        <Stale since={new Date(list.dataUpdatedAt).toLocaleTimeString()} onRetry={() => void list.refetch()} />
      )}
      <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
      <ListTable {...table} />
      <ListFooter
        shown={rows.length}
        total={total === null ? null : count(total)}
        more={list.hasNextPage}
        loading={list.isFetchingNextPage}
        onMore={() => void list.fetchNextPage()}
      />
    </>
  );
}
