import { useEffect, useRef, useState } from 'react';

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // No permission, or not a secure context (plain http on a host other than loopback): the old way works there.
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'visually-hidden';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  }
}

/** Copies `text`; `what` names it for screen readers ("Copy base URL"). */
export function CopyButton(props: { text: string; what: string; label?: string; onCopied?: () => void }) {
  const { text, what, label = 'Copy', onCopied } = props;
  const [state, setState] = useState<'idle' | 'copied' | 'failed'>('idle');
  const timer = useRef<number>(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const onClick = async () => {
    const copied = await copy(text);
    setState(copied ? 'copied' : 'failed');
    if (copied) onCopied?.();
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => setState('idle'), 2000);
  };
  return (
    <button type="button" className="button small" onClick={() => void onClick()}>
      <span aria-live="polite">{{ idle: label, copied: 'Copied', failed: 'Cannot copy' }[state]}</span>
      <span className="visually-hidden"> {what}</span>
    </button>
  );
}

/** A block of code with its copy button. It can be reached and scrolled by keyboard. */
export function CodeBlock({ code, what }: { code: string; what: string }) {
  return (
    <div className="code">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable by keyboard */}
      <section tabIndex={0} aria-label={what}>
        <pre>
          <code>{code}</code>
        </pre>
      </section>
      <CopyButton text={code} what={what} />
    </div>
  );
}

/** One short value in a line with its copy button. */
export function CopyLine({ label, value }: { label: string; value: string }) {
  return (
    <div className="copy-line">
      <span className="label">{label}</span>
      <code>{value}</code>
      <CopyButton text={value} what={label} />
    </div>
  );
}

/** A secret that is shown once: the whole of it, however long. `onCopied` also runs when it is copied by hand. */
export function SecretLine({ label, value, onCopied }: { label: string; value: string; onCopied: () => void }) {
  return (
    <div className="copy-line whole">
      <span className="label">{label}</span>
      <code onCopy={onCopied}>{value}</code>
      <CopyButton text={value} what={label} onCopied={onCopied} />
    </div>
  );
}
