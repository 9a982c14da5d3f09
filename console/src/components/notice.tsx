import type { ReactNode } from 'react';

/** Something the reader must see. `bad` is announced at once by screen readers. */
export function Notice({ tone, title, children }: { tone: 'bad' | 'info'; title: string; children?: ReactNode }) {
  return (
    <div className={`notice ${tone}`} role={tone === 'bad' ? 'alert' : undefined}>
      <strong>{title}</strong>
      {children}
    </div>
  );
}
