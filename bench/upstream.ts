/**
 * A provider that costs next to nothing: fixed answers, chat and stream, on a free loopback port. Run as a process of
 * its own; prints its port. Paths decide what it does, bodies are read and thrown away.
 */
import { createServer } from 'node:http';

const EVENTS = 50;
const GAP_MS = 5;

const content =
  'Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore. '.repeat(6);
const answer = Buffer.from(
  JSON.stringify({
    id: 'chatcmpl-bench',
    object: 'chat.completion',
    created: 1_767_225_600,
    model: 'gpt-4o-mini',
    choices: [
      { index: 0, message: { role: 'assistant', content, refusal: null }, logprobs: null, finish_reason: 'stop' },
    ],
    usage: { prompt_tokens: 210, completion_tokens: 120, total_tokens: 330 },
    system_fingerprint: 'fp_bench',
  }),
);

const chunk = (delta: object, finish: string | null, extra: object = {}) =>
  Buffer.from(
    `data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1_767_225_600, model: 'gpt-4o-mini', system_fingerprint: 'fp_bench', choices: [{ index: 0, delta, logprobs: null, finish_reason: finish }], ...extra })}\n\n`,
  );
const piece = chunk({ content: ' token of text' }, null);
const last = chunk({}, 'stop');
const usage = Buffer.from(
  `data: ${JSON.stringify({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: 1_767_225_600, model: 'gpt-4o-mini', choices: [], usage: { prompt_tokens: 210, completion_tokens: 120, total_tokens: 330 } })}\n\n`,
);
const done = Buffer.from('data: [DONE]\n\n');

const server = createServer((request, response) => {
  let stream = request.url?.includes('stream') ?? false;
  request.on('data', (part: Buffer) => {
    if (!stream && part.length < 4096 && part.includes('"stream":true')) stream = true;
  });
  request.on('end', () => {
    if (!stream) {
      response.writeHead(200, ['content-type', 'application/json', 'content-length', String(answer.length)]);
      response.end(answer);
      return;
    }
    response.writeHead(200, ['content-type', 'text/event-stream']);
    let sent = 0;
    const timer = setInterval(() => {
      if (sent++ < EVENTS) {
        response.write(piece);
        return;
      }
      clearInterval(timer);
      response.write(last);
      response.write(usage);
      response.end(done);
    }, GAP_MS);
    response.on('close', () => clearInterval(timer));
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(JSON.stringify({ port: typeof address === 'object' ? address?.port : 0 }));
});
