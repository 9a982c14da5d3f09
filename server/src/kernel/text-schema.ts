/** Texts as fields of a body: what may be stored, and how long it may be. */
import { z } from 'zod';

/** Text that PostgreSQL would refuse (U+0000) or silently change (unpaired surrogates) is refused at the edge. */
export function isCleanText(value: string): boolean {
  return value.isWellFormed() && !value.includes('\u0000');
}

/** Length as JSON Schema counts it. */
export function codePoints(value: string): number {
  let n = 0;
  for (let i = 0; i < value.length; i++) {
    const unit = value.charCodeAt(i);
    if (unit >= 0xd800 && unit <= 0xdbff && i + 1 < value.length) i++;
    n++;
  }
  return n;
}

/** A text of `min` to `max` code points. */
export function text(max: number, min = 0) {
  return z
    .string()
    .superRefine((value, context) => {
      const length = value.length <= max ? value.length : codePoints(value);
      if (!isCleanText(value)) {
        context.addIssue({ code: 'custom', message: 'must not contain U+0000 or unpaired surrogates' });
      } else if (length > max) {
        context.addIssue({ code: 'custom', message: `must have at most ${max} characters` });
      } else if (length < min) {
        context.addIssue({ code: 'custom', message: `must have at least ${min} character${min === 1 ? '' : 's'}` });
      }
    })
    .meta(min > 0 ? { minLength: min, maxLength: max } : { maxLength: max });
}
