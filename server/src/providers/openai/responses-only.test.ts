import { describe, expect, it } from 'vitest';
import { isResponsesOnly } from './responses-only.ts';

describe('models that speak Responses only', () => {
  it.each([
    'o1-pro',
    'o1-pro-2025-03-19',
    'o3-pro',
    'gpt-5-pro',
    'gpt-5-pro-2025-10-06',
    'gpt-5.2-pro',
    'gpt-5.5-pro-2026-04-23',
    'gpt-5-codex',
    'gpt-5.1-codex',
    'gpt-5.1-codex-max',
    'gpt-5.1-codex-mini',
    'gpt-5.3-codex',
    'codex-mini',
    'codex-mini-latest',
    'o3-deep-research',
    'o4-mini-deep-research-2025-06-26',
    'computer-use-preview',
    'computer-use-preview-2025-03-11',
    'gpt-5.6-cyber',
    'gpt-daybreak-blue-latest',
    'gpt-rosalind-research',
    'gpt-6-rosalind',
  ])('%s is one', (model) => {
    expect(isResponsesOnly(model)).toBe(true);
  });

  it.each([
    '',
    'o1',
    'o3-mini',
    'o4-mini-2025-04-16',
    'gpt-5',
    'gpt-5.2',
    'gpt-5-mini',
    'gpt-5-chat-latest',
    'gpt-6.1-sol',
    'gpt-4o',
    'gpt-4o-audio-preview',
    'gpt-5-search-api',
    'ft:gpt-4o:acme:gpt-5-pro',
    'my-gpt-5-pro',
    'proxy-model',
  ])('%s is none', (model) => {
    expect(isResponsesOnly(model)).toBe(false);
  });
});
