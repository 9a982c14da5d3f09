// Own process: it counts the idle memory that files before it may have left.
import { describe, expect, it } from 'vitest';
import { idleBufferBytes } from '../../http/buffer-pool.ts';
import { JsonAnswer, type JsonAnswerParts } from './json-answer.ts';

describe('an answer that is collected', () => {
  it('gives its memory back once when it is refused before it is read', () => {
    const before = idleBufferBytes();
    const answer = new JsonAnswer({} as JsonAnswerParts);
    for (let i = 0; i < 80; i++) answer.add(Buffer.alloc(64 * 1024));
    expect(idleBufferBytes()).toBe(before);
    answer.drop();
    expect(idleBufferBytes()).toBe(before + 6 * 1024 * 1024);
    answer.drop();
    expect(idleBufferBytes()).toBe(before + 6 * 1024 * 1024);
  });
});
