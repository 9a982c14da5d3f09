import { X } from 'lucide-react';
import { type ReactNode, useEffect, useId, useRef } from 'react';
import { t } from '../app/i18n.ts';

/**
 * One object beside its list, on wide screens. The list stays usable: this is no modal dialog. Escape closes it, and the focus
 * goes back to where it was.
 */
export function Sheet(props: { title: string; actions?: ReactNode; onClose: () => void; children: ReactNode }) {
  const { title, actions, onClose, children } = props;
  const heading = useRef<HTMLHeadingElement>(null);
  const id = useId();
  const close = useRef(onClose);
  close.current = onClose;
  useEffect(() => {
    const before = document.activeElement;
    heading.current?.focus({ preventScroll: true });
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key === 'Escape' && document.querySelector('dialog[open]') === null) close.current();
    };
    addEventListener('keydown', onKeyDown);
    return () => {
      removeEventListener('keydown', onKeyDown);
      if (before instanceof HTMLElement && before.isConnected) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <aside className="sheet" aria-labelledby={id}>
      <div className="sheet-head">
        <h2 id={id} ref={heading} tabIndex={-1}>
          {title}
        </h2>
        <div className="row wrap">
          {actions}
          <button type="button" className="button small" aria-label={t('Close')} onClick={onClose}>
            <X size={16} aria-hidden="true" />
          </button>
        </div>
      </div>
      {children}
    </aside>
  );
}
