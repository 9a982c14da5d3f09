import { matchRoute, useLocation, useRouter } from 'wouter';
import { PAGES, type Page } from './pages.ts';

/** The page of the address, also one that the reader may not see. */
export function useCurrentPage(): Page | null {
  const [location] = useLocation();
  const { parser } = useRouter();
  return PAGES.find(({ path }) => matchRoute(parser, path, location)[0]) ?? null;
}
