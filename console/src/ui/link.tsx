import type { ReactNode } from 'react';
import { Link } from 'wouter';
import { useHref } from '../shell/url-state.ts';

/** A link inside the console that carries workspace, range and zone along. */
export function To(props: {
  path: string;
  params?: Readonly<Record<string, string | null>>;
  className?: string;
  title?: string;
  current?: boolean;
  children: ReactNode;
}) {
  const href = useHref();
  const { path, params, className, title, current, children } = props;
  return (
    <Link href={href(path, params)} className={className} title={title} aria-current={current ? 'page' : undefined}>
      {children}
    </Link>
  );
}
