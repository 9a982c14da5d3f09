/** Names of workspaces as they are shown (`name_format`). */

const SEGMENTER = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/**
 * A grapheme cluster that is shown as an emoji: by default, by the emoji selector U+FE0F, by a skin tone, as a keycap, or
 * as a joined sequence whose selector was left out. What Unicode shows as text stays: digits, `©`, and emoji with the
 * text selector U+FE0E.
 */
const EMOJI =
  /^(?:\p{Emoji_Presentation}(?!\uFE0E)|\p{Extended_Pictographic}\uFE0F|\p{Emoji_Modifier_Base}\p{Emoji_Modifier}|[0-9#*]\uFE0F?\u20E3|\p{Extended_Pictographic}\u200D\p{Extended_Pictographic})/u;

/**
 * The name without the emoji it begins with, and without the space around them. A name of emoji only stays as it is, so
 * that no workspace is without a name.
 */
export function plainName(name: string): string {
  let emoji = false;
  for (const { segment, index } of SEGMENTER.segment(name)) {
    if (EMOJI.test(segment)) emoji = true;
    else if (segment.trim() !== '') return emoji ? name.slice(index) : name;
  }
  return name;
}

export type NameFormat = 'plain' | 'display';

/** `display`, the default: as it was written. */
export function formatName(name: string, format: NameFormat | undefined): string {
  return format === 'plain' ? plainName(name) : name;
}
