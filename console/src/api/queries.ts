/** Answers of the API as state of a page: kept, refreshed and shared by operation and input. */
import {
  keepPreviousData,
  QueryCache,
  QueryClient,
  useInfiniteQuery,
  useMutation,
  useQuery,
  useQueryClient,
} from '@tanstack/react-query';
import type { Operations } from '../../types/api.ts';
import { useSession } from '../shell/session.tsx';
import { ApiError, answer, type Operation } from './client.ts';

type Input<K extends Operation> = Operations[K]['input'];
type Answer<K extends Operation> = Operations[K]['answer'];

const RETRIES = 3;
const PATIENCE_MS = [1_000, 2_000, 5_000, 15_000];

/** Lost contact and failures of the server pass; a refusal does not. Of 429 the page says when it tries again. */
const mayPass = (error: unknown): boolean => error instanceof ApiError && (error.status === 0 || error.status >= 502);

/** @param onEnded is called when a call learns that the session is over */
export function makeQueryClient(onEnded: () => void): QueryClient {
  const notice = (error: unknown) => {
    if (error instanceof ApiError && error.status === 401) onEnded();
  };
  return new QueryClient({
    queryCache: new QueryCache({ onError: notice }),
    defaultOptions: {
      queries: {
        staleTime: 10_000,
        networkMode: 'always',
        retry: (failures, error) => failures < RETRIES && mayPass(error),
        retryDelay: (failures, error) =>
          error instanceof ApiError && error.refusal.retryAfter
            ? error.refusal.retryAfter * 1000
            : (PATIENCE_MS[failures] ?? 15_000),
      },
      mutations: { networkMode: 'always', onError: notice },
    },
  });
}

interface Options {
  readonly enabled?: boolean;
  /** Milliseconds. */
  readonly refetchInterval?: number | false;
}

/** Gateway headers of a call on the data plane. */
export type Headers = Readonly<Record<string, string>>;

interface CallOptions<A> {
  readonly enabled?: boolean;
  readonly headers?: Headers;
  /** Milliseconds until the next look; false where nothing changes any more. */
  readonly pollAfter?: (found: A | undefined) => number | false;
  readonly refetchInterval?: number | false;
}

/** What an operation answers. Old data stays while another input is asked for. */
export function useApi<K extends Operation>(operation: K, input: Input<K>, options: CallOptions<Answer<K>> = {}) {
  const { headers, pollAfter, ...others } = options;
  return useQuery<Answer<K>, Error>({
    queryKey: headers === undefined ? [operation, input] : [operation, input, headers],
    queryFn: ({ signal }) => answer(operation, input, { signal, headers }),
    placeholderData: keepPreviousData,
    ...(pollAfter && { refetchInterval: (query) => pollAfter(query.state.data) }),
    ...others,
  });
}

/** A list by cursor; `rows` are those of all pages so far. */
export function useCursorList<Row, Page extends { data: Row[]; next_cursor: string | null }>(
  key: readonly unknown[],
  ask: (cursor: string | undefined, signal: AbortSignal) => Promise<Page>,
  options: Options & { readonly pollAfter?: (rows: readonly Row[]) => number | false } = {},
) {
  const { pollAfter, ...others } = options;
  const list = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => ask(pageParam, signal),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last: Page) => last.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
    ...(pollAfter && {
      refetchInterval: (query: { state: { data?: { pages: Page[] } | undefined } }) =>
        pollAfter(query.state.data?.pages.flatMap((page) => page.data) ?? []),
    }),
    ...others,
  });
  return { list, rows: list.data?.pages.flatMap((page) => page.data) ?? [], first: list.data?.pages[0] };
}

/** A list by number of page; `rows` are those of all pages so far. */
export function usePagedList<Row, Page extends { data: Row[]; total: number }>(
  key: readonly unknown[],
  ask: (page: number, signal: AbortSignal) => Promise<Page>,
  options: Options = {},
) {
  const list = useInfiniteQuery({
    queryKey: key,
    queryFn: ({ pageParam, signal }) => ask(pageParam, signal),
    initialPageParam: 0,
    getNextPageParam: (last: Page, pages: Page[]) => {
      const loaded = pages.reduce((sum, page) => sum + page.data.length, 0);
      return last.data.length > 0 && loaded < last.total ? pages.length : undefined;
    },
    placeholderData: keepPreviousData,
    ...options,
  });
  const rows = list.data?.pages.flatMap((page) => page.data) ?? [];
  return { list, rows, total: list.data?.pages.at(-1)?.total ?? null };
}

/** A write. Afterwards every list that shows such objects asks again. */
export function useWrite<K extends Operation>(operation: K, headers?: Headers) {
  const { session } = useSession();
  const client = useQueryClient();
  return useMutation<Answer<K>, Error, Input<K>>({
    mutationFn: (input) => answer(operation, input, { csrf: session.csrf_token, headers }),
    onSuccess: () => client.invalidateQueries(),
  });
}
