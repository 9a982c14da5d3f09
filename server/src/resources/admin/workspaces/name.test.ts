import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatName, plainName } from './name.ts';

describe('the plain name of a workspace', () => {
  it.each([
    ['a single emoji', '🚀 Team', 'Team'],
    ['without a space', '🚀Team', 'Team'],
    ['a flag', '🇩🇪 Berlin', 'Berlin'],
    ['two flags', '🇩🇪🇫🇷 Border', 'Border'],
    ['a flag of a region, made of tags', '🏴󠁧󠁢󠁥󠁮󠁧󠁿 England', 'England'],
    ['a family joined by ZWJ', '👨‍👩‍👧‍👦 Family', 'Family'],
    ['a couple with two skin tones', '🧑🏻‍❤️‍💋‍🧑🏿 Pair', 'Pair'],
    ['a joined sequence without its selector', '❤‍🔥 Hot', 'Hot'],
    ['a rainbow flag', '🏳️‍🌈 Pride', 'Pride'],
    ['a keycap', '7️⃣ Seven', 'Seven'],
    ['a keycap without its selector', '#⃣ Hash', 'Hash'],
    ['a skin tone', '👍🏽 Fine', 'Fine'],
    ['a skin tone on what is text by default', '☝🏽 Up', 'Up'],
    ['a variation selector', '❤️ Love', 'Love'],
    ['a sign that a selector makes an emoji', '©️ Rights', 'Rights'],
    ['several emoji', '🚀🔥🎉 Launch', 'Launch'],
    ['several emoji with spaces', '🚀 🔥  Launch', 'Launch'],
    ['space before the emoji', ' 🚀 Team', 'Team'],
    ['an accent on the emoji', '🚀\u0301 Team', 'Team'],
    ['emoji further on', '🚀 Team 🚀', 'Team 🚀'],
  ])('leaves out %s', (_title, name, plain) => {
    expect(plainName(name)).toBe(plain);
    expect(formatName(name, 'plain')).toBe(plain);
    expect(formatName(name, 'display')).toBe(name);
    expect(formatName(name, undefined)).toBe(name);
  });

  it.each([
    ['no emoji', 'Team'],
    ['a digit', '7 Team'],
    ['a hash', '# Team'],
    ['a sign that is text', '© Team'],
    ['a heart that is text', '❤ Team'],
    ['an emoji that a selector makes text', '⌚\uFE0E Watch'],
    ['an accent', 'e\u0301cole'],
    ['space only before it', '  Team'],
    ['an emoji in the middle', 'Team 🚀 One'],
    ['an emoji only', '🚀'],
    ['emoji only', '🚀 🇩🇪👨‍👩‍👧‍👦'],
    ['space only', '  '],
    ['nothing', ''],
  ])('keeps a name with %s', (_title, name) => {
    expect(plainName(name)).toBe(name);
  });

  it('is an end of the name, is never empty, and has no emoji left to leave out', () => {
    const part = fc.constantFrom('🚀', '🇩🇪', '👨‍👩‍👧', '7️⃣', '👍🏽', ' ', 'a', '7', '❤️', '\u200d', '\uFE0F', 'é', '漢');
    fc.assert(
      fc.property(fc.array(part, { minLength: 1, maxLength: 12 }), (parts) => {
        const name = parts.join('');
        const plain = plainName(name);
        expect(name.endsWith(plain)).toBe(true);
        expect(plain).not.toBe('');
        if (plain !== name) expect(plainName(plain)).toBe(plain);
      }),
    );
  });
});
