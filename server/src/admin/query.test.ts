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

  it('joins the values of a name that may be sent several times by commas', () => {
    expect({ ...parseQuery('/v1/x?a=1&b=2&a=3', ['a']) }).toEqual({ a: '1,3', b: '2' });
    expect(() => parseQuery('/v1/x?a=1&b=2&b=3', ['a'])).toThrow(/Send the query parameter b once/);
  });

  it.each(['tags[a]=1&tags[a]=2', 'tags[a]=1&tags={}', 'a=1&a=1', 'a=%zz', 'a=%00'])('%s is refused', (query) => {
    expect(() => read(query)).toThrow(expect.objectContaining({ kind: 'validation' }));
  });
});
