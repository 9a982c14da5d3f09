/** Guardrails over streams of transcriptions, through a whole server. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startServer, type TestServer } from '../support/server.ts';
import { type FakeUpstream, sendEvents, startUpstream } from '../support/upstream.ts';

let upstream: FakeUpstream;
let server: TestServer;
let slug: string;

beforeAll(async () => {
  upstream = await startUpstream(() => undefined);
  server = await startServer({ SLUICE_TRUSTED_HOSTS: `127.0.0.1:${upstream.port}` });
  slug = await server.provider({ id: 'openai', host: `${upstream.url}/v1` });
});
afterAll(async () => {
  await server?.stop();
  await upstream?.stop();
});

const event = (body: object) => `data: ${JSON.stringify(body)}\n\n`;
/** As OpenAI sends a transcription, the text in these pieces. */
const transcript = (...pieces: string[]) => [
  ...pieces.map((delta) => event({ type: 'transcript.text.delta', delta, logprobs: [{ token: delta, logprob: -1 }] })),
  event({ type: 'transcript.text.done', text: pieces.join(''), usage: { type: 'duration', seconds: 1 } }),
];
async function transcribe(events: string[], guardrail: object, headers: Record<string, string> = {}) {
  upstream.answer = (_request, response) => sendEvents(response, events);
  const form = new FormData();
  form.set('model', 'gpt-4o-transcribe');
  form.set('stream', 'true');
  form.set('file', new Blob([new Uint8Array([1, 2, 3])], { type: 'audio/mpeg' }), 'a.mp3');
  const answer = await fetch(`${server.url}/v1/audio/transcriptions`, {
    method: 'POST',
    headers: {
      'x-gateway-api-key': server.first.workspace_api_key,
      'x-gateway-config': JSON.stringify({ provider: `@${slug}`, output_guardrails: [guardrail] }),
      ...headers,
    },
    body: form,
  });
  return { status: answer.status, text: await answer.text() };
}

const WORD = { id: 'word', deny: true, 'default.contains': { words: ['forbidden'], operator: 'none' } };
const WHOLE = { id: 'whole', deny: true, 'default.regexMatch': { rule: 'forbid+en', not: true } };
const MAIL = { id: 'mail', 'gateway.pii': { categories: ['EMAIL_ADDRESS'], redact: true } };
const LOOSE = { 'x-gateway-strict-open-ai-compliance': 'false' };

describe('a stream of a transcription', () => {
  it.each([WORD, WHOLE])('that is denied shows nothing of it, however it is cut', async (guardrail) => {
    const { status, text } = await transcribe(transcript('This is for', 'bidd', 'en here'), guardrail);
    expect(text).not.toMatch(/for"|bidd|forbidden/);
    expect(status === 446 || text.includes('hooks_failed')).toBe(true);
  });

  it.each([WORD, WHOLE, MAIL])('that passes arrives byte for byte', async (guardrail) => {
    const events = transcript('All is', ' well', ' here');
    expect(await transcribe(events, guardrail, LOOSE)).toEqual({ status: 200, text: events.join('') });
  });

  it('that is redacted holds nothing of what was taken out, in pieces, in the whole text or in tokens', async () => {
    const { status, text } = await transcribe(transcript('Ask some', 'one@exam', 'ple.com now'), MAIL);
    expect(status).toBe(200);
    expect(text).not.toMatch(/some|one@|exam|ple\.com/);
    expect(text).toContain('"text":"Ask {{EMAIL_ADDRESS_1}} now"');
  });

  it('that has an event nobody knows is refused by a guardrail that denies', async () => {
    const odd = event({ type: 'transcript.text.segment', id: 's', speaker: 'A', text: 'forbidden' });
    const { text } = await transcribe([odd, ...transcript('All is well')], WORD);
    expect(text).toContain('hooks_failed');
    expect(text).not.toContain('forbidden');
  });
});
