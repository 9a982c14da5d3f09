import { type ReactNode, useEffect, useId, useRef } from 'react';

/**
 * A modal dialog: the browser's own, which traps the focus, closes on Escape, makes the page behind inert and gives the focus
 * back. It is open while it is rendered.
 */
export function Dialog(props: {
  title: string;
  onClose: () => void;
  /** Without it Escape and the backdrop do nothing: something must be decided. */
  closable?: boolean;
  wide?: boolean;
  children: ReactNode;
}) {
  const { title, onClose, closable = true, wide = false, children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const heading = useId();
  useEffect(() => {
    const own = dialog.current;
    const before = document.activeElement;
    own?.showModal();
    return () => {
      own?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: Escape closes it, which is the browser's work
    <dialog
      ref={dialog}
      className={wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        if (closable) onClose();
      }}
      onClick={(event) => {
        if (closable && event.target === dialog.current) onClose();
      }}
    >
      <div className="dialog-body">
        <h2 id={heading}>{title}</h2>
        {children}
      </div>
    </dialog>
  );
}
