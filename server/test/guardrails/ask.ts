/** One request of a line of the matrix, and what an upstream gives for it. */
import type { ServerResponse } from 'node:http';
import type { Line } from '../limits/calls.ts';
import { sendEvents, sendJson } from '../support/upstream.ts';
import type { Answer } from './said.ts';

/** `more` stands in place of members of the line's body. */
export async function ask(
  url: string,
  line: Line,
  more: object,
  headers: Readonly<Record<string, string>>,
): Promise<Response> {
  const json = line.operation.body === 'json' || line.operation.family === 'proxy';
  const fields = line.fields === null ? null : { ...line.fields, ...more };
  const form = new FormData();
  for (const [name, value] of Object.entries(fields ?? {})) {
    if (value instanceof Blob) form.set(name, value, 'lines.jsonl');
    else form.set(name, String(value));
  }
  return fetch(`${url}/v1${line.path}`, {
    method: line.method,
    headers: { ...(json && fields !== null ? { 'content-type': 'application/json' } : {}), ...headers },
    ...(fields === null ? {} : { body: json ? JSON.stringify(fields) : form }),
  });
}

export function give(answer: Answer, response: ServerResponse): void {
  if ('events' in answer) sendEvents(response, answer.events);
  else if ('json' in answer) sendJson(response, 200, answer.json);
  else {
    response.writeHead(200, { 'content-type': 'application/octet-stream' });
    response.end(answer.file);
  }
}
