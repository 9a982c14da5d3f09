import { describe, expect, it } from 'vitest';
import { requestedObjects } from './requested-objects.ts';

describe('what a path asks for', () => {
  it.each([
    ['an encoded slash as a slash', 'GET', '/models/a%2Fb'],
    ['an encoded slash before a name', 'POST', '/deployments/a%2Ffiles/chat/completions'],
    ['what cannot be decoded', 'GET', '/models/%ff'],
  ])('reads %s: nobody knows whose that is', (_title, method, path) => {
    expect(requestedObjects(method, path)).toEqual({ kind: 'closed' });
  });

  it('finds the id of an object decoded, as the provider reads it', () => {
    expect(requestedObjects('GET', '/responses/resp%2D1?include[]=x')).toEqual({
      kind: 'one',
      of: 'response',
      id: 'resp-1',
    });
    expect(requestedObjects('GET', '//responses//resp-1')).toEqual({ kind: 'one', of: 'response', id: 'resp-1' });
  });
});
