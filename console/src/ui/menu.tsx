import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from 'react';

/**
 * A button that opens a panel of links, choices or fields below it. Escape and a click elsewhere close it; the focus goes back
 * to the button.
 */
export function Popover(props: {
  label: ReactNode;
  /** Where the label is no text. */
  name?: string;
  className?: string;
  align?: 'start' | 'end';
  children: (close: () => void) => ReactNode;
}) {
  const { label, name, className = 'button small', align = 'start', children } = props;
  const [open, setOpen] = useState(false);
  const id = useId();
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!open) return;
    const onPointer = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener('pointerdown', onPointer);
    return () => removeEventListener('pointerdown', onPointer);
  }, [open]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== 'Escape' || !open) return;
    event.stopPropagation();
    close();
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: Escape of what is inside
    <div className="popover-root" ref={root} onKeyDown={onKeyDown}>
      <button
        ref={button}
        type="button"
        className={className}
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={name}
        onClick={() => setOpen(!open)}
      >
        {label}
      </button>
      {open && (
        <div className={`popover ${align}`} id={id}>
          {children(close)}
        </div>
      )}
    </div>
  );
}
