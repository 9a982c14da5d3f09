import { describe, expect, it } from 'vitest';
import { parseQuery } from './query.ts';

const read = (query: string) => ({ ...parseQuery(`/v1/providers?${query}`) });

describe('a query string', () => {
  it('tags[key]=value is the other spelling of tags as JSON text', () => {
    expect(read('tags[team]=search')).toEqual({ tags: '{"team":"search"}' });
    expect(read('tags%5Bteam%5D=a+b&tags[env]=x&page_size=1')).toEqual({
      page_size: '1',
      tags: '{"team":"a b","env":"x"}',
    });
  });

  it.each(['tags[a]=1&tags[a]=2', 'tags[a]=1&tags={}', 'a=1&a=1', 'a=%zz', 'a=%00'])('%s is refused', (query) => {
    expect(() => read(query)).toThrow(expect.objectContaining({ kind: 'validation' }));
  });
});
