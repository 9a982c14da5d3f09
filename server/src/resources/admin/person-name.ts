/** First and last names of users. */

import { z } from 'zod';
import { text } from '../body-fields.ts';

/** Everything but controls and formats; of the formats the two joiners, without which some scripts cannot be written. */
const SEEN = /^(?:[\u200c\u200d]|[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}])*$/u;

/**
 * A first or last name: 1 to 100 characters without the space around them. Nothing that is not seen: a mark that turns
 * the direction of writing would let an invited person rewrite the lines that show the name.
 */
export const personName = z
  .string()
  .transform((value) => value.trim())
  .pipe(text(100, 1).regex(SEEN, 'must not contain control or format characters'));
