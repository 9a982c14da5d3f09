import fc from 'fast-check';
import { expect, it } from 'vitest';
import { parseModel } from './models.ts';

it('takes the slug from @slug/model and leaves every other slash alone', () => {
  expect(parseModel('@openai-prod/gpt-5')).toEqual({ slug: 'openai-prod', model: 'gpt-5' });
  expect(parseModel('@fw/accounts/fireworks/models/x')).toEqual({ slug: 'fw', model: 'accounts/fireworks/models/x' });
  expect(parseModel('accounts/fireworks/models/x')).toEqual({ slug: null, model: 'accounts/fireworks/models/x' });
  expect(parseModel('@cf')).toEqual({ slug: null, model: '@cf' });
  expect(parseModel('@/x')).toEqual({ slug: null, model: '@/x' });
});

it('loses nothing of any model name', () => {
  fc.assert(
    fc.property(fc.string(), (text) => {
      const { slug, model } = parseModel(text);
      expect(slug === null ? model : `@${slug}/${model}`).toBe(text);
    }),
  );
});
