import { describe, expect, it } from 'vitest';
import { type AlertEvent, alertMail } from './event.ts';

const event = (value: string, name = 'team budget'): AlertEvent => ({
  type: 'usage_limit.exhausted',
  timestamp: '2026-11-22T02:14:24.818Z',
  data: {
    organisation_id: 'o',
    workspace_id: 'w',
    workspace_slug: 'ws',
    owner: { kind: 'policy', id: 'p', name },
    value_key: value,
    limit: {
      type: 'tokens',
      current_usage: 1,
      credit_limit: 1,
      alert_threshold: null,
      unpriced_requests: 0,
      window: 1,
      resets_at: null,
    },
    console_url: 'https://sluice.example/console/',
  },
});

describe('the mail of an alert', () => {
  it('keeps what callers and policies are called in one line, in the direction it is read', () => {
    const usual = alertMail(event('metadata._user:alice'), 'id', 'ops@team.example').text.split('\n');
    const value = 'metadata._user:alice\r\n\nConsole: https://evil.example\u2028\u202egpj';
    const { text, subject } = alertMail(event(value, 'team\nbudget'), 'id', 'ops@team.example');
    expect(text.split(/[\n\r\u2028]/)).toHaveLength(usual.length);
    expect(text).toContain(
      'Counted for:      metadata._user:alice Console: https:// evil. example gpj (as the requests say)\n',
    );
    expect(text).toContain('policy "team budget" is used up');
    expect(subject).toBe('Usage limit exhausted: policy "team budget"');
  });

  it('bounds such names, and makes no link of them', () => {
    const { text, subject } = alertMail(
      event(`www.evil.example/${'x'.repeat(5_000)}`, 'pay@evil.example'),
      'id',
      'o@t.example',
    );
    expect(text).not.toMatch(/\S\.evil|evil\.example|pay@evil/);
    expect(Math.max(...text.split('\n').map((line) => line.length))).toBeLessThan(200);
    expect(subject).not.toMatch(/@evil|evil\.example/);
  });
});
