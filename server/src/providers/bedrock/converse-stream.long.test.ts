import { describe, expect, it } from 'vitest';
import { awsEvent } from '../../../test/support/aws-frames.ts';
import { contextOf } from '../../../test/support/provider-fixtures.ts';
import {
  blockStop,
  callFrames,
  claudeFrames,
  streamEnd,
  streamStart,
  textDelta,
} from '../../../test/support/upstreams/bedrock-runtime.ts';
import { formatEvent, parseEvent } from '../../kernel/sse.ts';
import { AwsFrames } from '../aws/frames.ts';
import { bindingFor } from '../binding.ts';
import { providerById } from '../catalog.ts';
import type { Provider } from '../provider.ts';

const CLAUDE = 'eu.anthropic.claude-opus-4-1-20250805-v1:0';
const NOVA = 'eu.amazon.nova-pro-v1:0';

const bedrock = providerById('bedrock') as Provider;

/** The caller's stream for binary messages that arrive in `chunks`. */
function run(operation: 'chat' | 'messages' | 'responses', model: string, chunks: readonly Buffer[]): string {
  const bound = bindingFor(bedrock, operation, model);
  const body = { model, messages: [], stream: true, thinking: { type: 'enabled', budget_tokens: 1024 } };
  const transform = bound?.stream?.(contextOf(operation, { body }, { stream: true, strict: false }));
  const frames = new AwsFrames();
  let out = '';
  const emit = (event: { event: string | null; data: string }): void => {
    out += formatEvent(event);
  };
  for (const chunk of chunks) {
    for (const bytes of frames.push(chunk)) {
      const event = parseEvent(bytes);
      if (event === null) continue;
      if (transform === undefined) emit(event);
      else transform.event(event, emit);
    }
  }
  expect(frames.broken).toBeNull();
  transform?.end(emit);
  return out;
}

const thought = awsEvent('contentBlockDelta', {
  contentBlockIndex: 0,
  delta: { reasoningContent: { text: 'Hm, ü.', signature: 'c2ln' } },
});
const CONVERSE = Buffer.concat([
  streamStart(),
  thought,
  blockStop(0),
  textDelta('Grü', 1),
  textDelta('ße 😀', 1),
  blockStop(1),
  ...callFrames(2, 'tooluse_1', 'weather', ['{"city":"K', 'öln"}']),
  ...callFrames(3, 'tooluse_2', 'weather', []),
  ...streamEnd('tool_use'),
]);

describe('a stream of binary messages', () => {
  it.each([
    ['chat', NOVA, CONVERSE, '[DONE]'],
    ['messages', NOVA, CONVERSE, 'message_stop'],
    ['responses', CLAUDE, CONVERSE, 'response.completed'],
    ['messages', CLAUDE, Buffer.concat(claudeFrames(['Grü', 'ße 😀'])), 'message_stop'],
  ] as const)('for %s of %s is the same wherever it is split', (operation, model, bytes, end) => {
    const whole = run(operation, model, [bytes]);
    expect(whole).toContain('Grü');
    expect(whole).toContain('ße 😀');
    expect(whole).toContain(end);
    for (let at = 1; at < bytes.length; at++) {
      const split = run(operation, model, [bytes.subarray(0, at), bytes.subarray(at)]);
      if (split !== whole) expect({ at, split }).toEqual({ at, split: whole });
    }
    const single = Array.from(bytes, (_, i) => bytes.subarray(i, i + 1));
    expect(run(operation, model, single)).toBe(whole);
  });

  it('never looks complete when it ends anywhere before its end', () => {
    // The last message is the usage: without all of it the answer was cut.
    for (let at = 1; at < CONVERSE.length; at += 7) {
      const cut = run('chat', NOVA, [CONVERSE.subarray(0, at)]);
      expect(cut).not.toContain('[DONE]');
      expect(cut).not.toContain('"finish_reason":"tool_calls"');
      expect(cut).toContain('upstream_stream_cut');
    }
  });
});
