import { expect, it } from 'vitest';
import { wordsOf } from './words.ts';

it.each([[['DIR', '--data-dir', 'X']], [['--data-dir', 'X', 'DIR']]])(
  'words and flags may come in any order: %s',
  (args) => {
    expect(wordsOf(args, [])).toEqual({ plain: ['DIR'], own: {}, settings: ['--data-dir', 'X'] });
  },
);

it('a flag with = takes no word behind it', () => {
  expect(wordsOf(['--data-dir=X', 'DIR', '--name', 'n'], ['name'])).toEqual({
    plain: ['DIR'],
    own: { name: 'n' },
    settings: ['--data-dir=X'],
  });
});
