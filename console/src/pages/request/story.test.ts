import { expect, test } from 'vitest';
import { type Decision, story } from './story.ts';

const attempt = (own: Partial<Decision['attempts'][number]>): Decision['attempts'][number] => ({
  target: 'config.targets[0]',
  provider: 'openai',
  status: 200,
  error: null,
  cause: null,
  began_ms: 0,
  queued_ms: null,
  connect_ms: null,
  first_byte_ms: null,
  first_content_ms: null,
  duration_ms: 1,
  ...own,
});

const decision = (own: Partial<Decision>): Decision =>
  ({
    dry_run: false,
    operation: 'chat',
    model: { requested: 'gpt-4o', sent: 'gpt-4o', answered: 'gpt-4o' },
    config: null,
    rules: [],
    route: [],
    attempts: [attempt({})],
    guardrails: { input: [], output: [], verdicts: [] },
    cache: { status: 'DISABLED' },
    fields_changed: null,
    converted_to: null,
    outcome: { status: 200, outcome: 'ok', error_code: null, error_message: null, latency_ms: 120, ttft_ms: null },
    ...own,
  }) as Decision;

test('a plain request is three sentences', () => {
  expect(story(decision({}))).toEqual([
    'Asked for gpt-4o.',
    'openai (config.targets[0]) answered with 200.',
    'The answer was complete after 120 ms.',
  ]);
});

test('a fallback tells tries in a row as one, the wait between them, and what was changed', () => {
  const cause = { kind: 'status', code: null, message: 'Down.' } as const;
  const told = story(
    decision({
      config: { slug: 'chat-fallback', version_id: 'v' },
      attempts: [
        attempt({ status: 503, cause, duration_ms: 2 }),
        attempt({ status: 503, cause, began_ms: 702, duration_ms: 2 }),
        attempt({ target: 'config.targets[1]', provider: 'sandbox', began_ms: 705 }),
      ],
      fields_changed: { added: [], dropped: ['seed'], overridden: ['model'] },
    }),
  );
  expect(told).toEqual([
    'Asked for gpt-4o with the config chat-fallback.',
    'openai (config.targets[0]) failed 2 times: 503.',
    'sandbox (config.targets[1]) answered with 200.',
    '700 ms were spent waiting between tries.',
    'Changed on the way: model, seed.',
    'The answer was complete after 120 ms.',
  ]);
});

test('the story says why a fallback stopped, and what a connection failed with', () => {
  const cause = { kind: 'connection', code: null, message: 'The host could not be found.' } as const;
  const stopped = '502 is not in on_status_codes';
  const route = [{ path: 'config', mode: 'fallback', chosen: 'config.targets[0]', why: '', stopped, left_out: [] }];
  const outcome = {
    status: 502,
    outcome: 'failed',
    error_code: null,
    error_message: null,
    latency_ms: 9,
    ttft_ms: null,
  };
  expect(story(decision({ attempts: [attempt({ status: null, cause })], route, outcome }))).toEqual([
    'Asked for gpt-4o.',
    'openai (config.targets[0]) failed: The host could not be found.',
    'The fallback stopped: 502 is not in on_status_codes.',
    'It failed with 502 after 9.0 ms.',
  ]);
});

test('a request that a limit refused asked no provider', () => {
  const outcome = {
    status: 412,
    outcome: 'refused',
    error_code: null,
    error_message: null,
    latency_ms: 1,
    ttft_ms: null,
  };
  const rules = [{ kind: 'usage_limit', id: 'p', outcome: 'refused' as const }];
  expect(story(decision({ attempts: [], rules, outcome }))).toEqual([
    'Asked for gpt-4o.',
    '1 limit refused it.',
    'Sluice refused it with 412 after 1.0 ms.',
  ]);
});
