import { describe, expect, it } from 'vitest';
import { Creation } from './creation.ts';

const answer = (more: object) =>
  Buffer.from(JSON.stringify({ id: 'resp_1', output: [{ type: 'reasoning', id: 'rs_1' }], ...more }));

describe('what an answer makes at a shared account', () => {
  it('is the response and its items', () => {
    const creation = new Creation('response', true);
    creation.whole(answer({}), null);
    expect(creation.made).toEqual([
      { kind: 'response', id: 'resp_1' },
      { kind: 'item', id: 'rs_1' },
    ]);
  });

  it('is nothing when the provider kept nothing', () => {
    const creation = new Creation('response', true);
    creation.whole(answer({ store: false }), null);
    expect(creation.made).toEqual([]);
  });
});
