/** A file of any size through a server process of its own, and what that cost in memory. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { FirstRun } from '../../src/first-run.ts';
import { type ServerProcess, startProcess } from './process.ts';

export type Way =
  /** To a provider, streamed as it comes. */
  | 'purpose-first'
  /** To a provider, by way of the disk: the purpose stands behind the file. */
  | 'file-first'
  /** Into the server's own store. */
  | 'kept';

export interface LargeUpload {
  readonly status: number;
  /** SHA-256 of what was sent, and of what arrived and can be read again. */
  readonly sent: string;
  readonly arrived: string;
  /** Largest resident memory above that before the upload, bytes; null where the system does not tell. */
  readonly growth: number | null;
  readonly seconds: number;
}

const PIECE = Buffer.from(
  `${JSON.stringify({ custom_id: 'x'.repeat(40), messages: [{ role: 'user', content: 'How are you? '.repeat(60) }] })}\n`.repeat(
    64,
  ),
);

export interface LargeUploads {
  send(way: Way, bytes: number): Promise<LargeUpload>;
  stop(): Promise<void>;
}

/** Starts the server and a provider that keeps nothing but the digest of what it is sent. */
export async function startLargeUploads(): Promise<LargeUploads> {
  let arrived = '';
  let taking = createHash('sha256');
  let size = 0;
  const upstream = createServer((incoming, response) => {
    const path = incoming.url ?? '';
    const answer = (body: object) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify(body));
    };
    const file = () => {
      arrived = taking.digest('hex');
      return { id: 'file-1', object: 'file', bytes: size, created_at: 1, filename: 'f', purpose: 'assistants' };
    };
    const take = async () => {
      const form = /boundary=(.+)$/.exec(incoming.headers['content-type'] ?? '');
      if (form === null) {
        // JSON of the calls that open and complete an upload in parts.
        for await (const _ of incoming);
        return;
      }
      const part = filePart(form[1] ?? '', (bytes) => {
        taking.update(bytes);
        size += bytes.length;
      });
      for await (const chunk of incoming as AsyncIterable<Buffer>) part(chunk);
    };
    if (path === '/v1/files' || path === '/v1/uploads') {
      taking = createHash('sha256');
      size = 0;
    }
    take().then(
      () => {
        if (path === '/v1/files') answer({ ...file(), status: 'processed' });
        else if (path === '/v1/uploads') answer({ id: 'upload_1', object: 'upload', status: 'pending' });
        else if (path.endsWith('/parts')) answer({ id: `part_${size}`, object: 'upload.part' });
        else
          answer({ id: 'upload_1', object: 'upload', status: 'completed', file: { ...file(), status: 'processed' } });
      },
      () => response.destroy(),
    );
  });
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  const host = `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`;
  const dataDir = await mkdtemp(join(tmpdir(), 'sluice-large-'));
  const server = await startProcess(dataDir, {
    SLUICE_TRUSTED_HOSTS: '127.0.0.1',
    SLUICE_MAX_UPLOAD_BYTES: String(4 * 1024 ** 3),
    // As `npm start` runs it.
    NODE_OPTIONS: '--max-semi-space-size=8',
  });
  const first = JSON.parse(await readFile(join(dataDir, 'first-run.json'), 'utf8')) as FirstRun;
  const routing = {
    'x-gateway-provider': 'openai',
    'x-gateway-custom-host': host,
    authorization: 'Bearer sk-own-token',
  };
  return {
    async send(way, bytes) {
      const headers = {
        'x-gateway-api-key': first.workspace_api_key,
        ...(way === 'kept' ? { 'x-gateway-provider': 'gateway' } : routing),
      };
      // What loading code and starting threads costs is no growth with the size of a file.
      await upload(server, headers, way, 8 * 1024 * 1024);
      const memory = watchMemory(server);
      const started = performance.now();
      const { status, sent, id } = await upload(server, headers, way, bytes);
      const seconds = (performance.now() - started) / 1000;
      const growth = memory.stop();
      if (way === 'kept') arrived = await download(server, headers, id);
      return { status, sent, arrived, growth, seconds };
    },
    async stop() {
      server.child.kill('SIGKILL');
      await server.ended;
      upstream.closeAllConnections();
      upstream.close();
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

/** Hands on the bytes of a form's file part, which is the only one with a file name. */
function filePart(boundary: string, add: (bytes: Buffer) => void): (chunk: Buffer) => void {
  const delimiter = Buffer.from(`\r\n--${boundary}`);
  let rest: Buffer = Buffer.alloc(0);
  let inFile = false;
  return (chunk) => {
    rest = Buffer.concat([rest, chunk]);
    for (;;) {
      if (inFile) {
        const end = rest.indexOf(delimiter);
        const until = end < 0 ? Math.max(0, rest.length - delimiter.length) : end;
        add(rest.subarray(0, until));
        rest = rest.subarray(until);
        if (end < 0) return;
        rest = rest.subarray(delimiter.length);
        inFile = false;
      } else {
        const at = rest.indexOf('filename=');
        const end = at < 0 ? -1 : rest.indexOf('\r\n\r\n', at);
        if (end < 0) return;
        rest = rest.subarray(end + 4);
        inFile = true;
      }
    }
  };
}

async function upload(server: ServerProcess, headers: Record<string, string>, way: Way, bytes: number) {
  const boundary = 'b0undary-of-a-large-upload';
  const purpose = `--${boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nassistants\r\n`;
  const file = `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="big.jsonl"\r\n\r\n`;
  const hash = createHash('sha256');
  async function* body(): AsyncGenerator<Buffer> {
    yield Buffer.from(way === 'file-first' ? file : purpose + file);
    for (let left = bytes; left > 0; left -= PIECE.length) {
      const piece = left < PIECE.length ? PIECE.subarray(0, left) : PIECE;
      hash.update(piece);
      yield piece;
    }
    yield Buffer.from(way === 'file-first' ? `\r\n${purpose}--${boundary}--\r\n` : `\r\n--${boundary}--\r\n`);
  }
  const outgoing = request(`${server.url}/v1/files`, {
    method: 'POST',
    headers: {
      ...headers,
      'content-type': `multipart/form-data; boundary=${boundary}`,
      // Past half a gigabyte the provider wants parts, and those the size.
      ...(bytes > 500_000_000 && way === 'purpose-first' ? { 'x-gateway-file-upload-size': String(bytes) } : {}),
    },
  });
  const answered = new Promise<{ status: number; text: string }>((resolve, reject) => {
    outgoing.on('error', reject);
    outgoing.on('response', (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (part: string) => {
        text += part;
      });
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
  });
  await Promise.all([pipeline(body, outgoing), answered]);
  const { status, text } = await answered;
  return { status, sent: hash.digest('hex'), id: String((JSON.parse(text) as { id?: unknown }).id) };
}

async function download(server: ServerProcess, headers: Record<string, string>, id: string): Promise<string> {
  const hash = createHash('sha256');
  const answer = await fetch(`${server.url}/v1/files/${id}/content`, { headers });
  for await (const chunk of answer.body ?? []) hash.update(chunk);
  return hash.digest('hex');
}

function watchMemory(server: ServerProcess): { stop(): number | null } {
  const now = () => {
    try {
      const found = /VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${server.child.pid}/status`, 'utf8'));
      return found === null ? null : Number(found[1]) * 1024;
    } catch {
      return null;
    }
  };
  const before = now();
  let peak = before ?? 0;
  const timer = setInterval(() => {
    peak = Math.max(peak, now() ?? 0);
  }, 20);
  return {
    stop() {
      clearInterval(timer);
      peak = Math.max(peak, now() ?? 0);
      return before === null ? null : peak - before;
    },
  };
}
