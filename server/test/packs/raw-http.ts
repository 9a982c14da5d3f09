import { connect } from 'node:net';

/** Requests as bytes (pack "raw HTTP"): framing, lengths, chunks, lines, target, host, headers. */

export interface RawCase {
  readonly title: string;
  readonly bytes: string;
  /** Body the server must see for a lawful request; null when the request must be refused. */
  readonly body: string | null;
}

const post = (headers: string, body = '', target = '/x') =>
  `POST ${target} HTTP/1.1\r\nHost: a.example\r\n${headers}\r\n${body}`;
const get = (headers = '', target = '/x') => `GET ${target} HTTP/1.1\r\nHost: a.example\r\n${headers}\r\n`;
const refused = (title: string, bytes: string): RawCase => ({ title, bytes, body: null });
const lawful = (title: string, bytes: string, body = ''): RawCase => ({ title, bytes, body });
const SMUGGLED = 'GET /smuggled HTTP/1.1\r\nHost: a.example\r\n\r\n';
const CHUNKED = 'Transfer-Encoding: chunked\r\n';

export const RAW_CASES: readonly RawCase[] = [
  lawful('a plain GET', get()),
  lawful('a body by length', post('Content-Length: 5\r\n', 'hello'), 'hello'),
  lawful('a body in chunks', post(CHUNKED, '2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n'), 'hello'),
  lawful(
    'upper-case hexadecimal and leading zeros in a chunk size',
    post(CHUNKED, '00A\r\n0123456789\r\n0\r\n\r\n'),
    '0123456789',
  ),
  lawful('chunk extensions, which have no effect', post(CHUNKED, '5;a=b;c="d"\r\nhello\r\n0;x\r\n\r\n'), 'hello'),
  lawful(
    'trailers, which are dropped',
    post(`${CHUNKED}Trailer: x-gateway-api-key\r\n`, '5\r\nhello\r\n0\r\nx-gateway-api-key: k\r\n\r\n'),
    'hello',
  ),
  lawful('an empty body by length on GET', get('Content-Length: 0\r\n')),
  lawful('a header with inner spaces and tabs', get('X-A: a b\tc\r\n')),
  // The parser swallows the second space before anyone could see it; the target is the same.
  lawful('two spaces in the request line', 'GET  /x HTTP/1.1\r\nHost: a.example\r\n\r\n'),
  refused('a port in Host that is none', 'GET /x HTTP/1.1\r\nHost: a.example:99999\r\n\r\n'),
  refused('a port of an IPv6 Host that is none', 'GET /x HTTP/1.1\r\nHost: [::1]:65536\r\n\r\n'),
  lawful('the last port in Host', 'GET /x HTTP/1.1\r\nHost: a.example:65535\r\n\r\n'),
  lawful('a port in Host', 'GET /x HTTP/1.1\r\nHost: a.example:8787\r\n\r\n'),
  lawful('an IPv6 Host', 'GET /x HTTP/1.1\r\nHost: [::1]:8787\r\n\r\n'),
  lawful('a body that looks like a request', post(`Content-Length: ${SMUGGLED.length}\r\n`, SMUGGLED), SMUGGLED),
  lawful('a hundred headers', get(Array.from({ length: 99 }, (_, k) => `X-${k}: 1\r\n`).join(''))),
  lawful(
    'Connection that names a credential header',
    get('Connection: keep-alive, x-gateway-api-key\r\nX-Gateway-Api-Key: k\r\n'),
  ),

  refused('length and chunks', post(`Content-Length: 5\r\n${CHUNKED}`, `0\r\n\r\n${SMUGGLED}`)),
  refused('chunks and length', post(`${CHUNKED}Content-Length: 4\r\n`, `5c\r\n${SMUGGLED}\r\n0\r\n\r\n`)),
  refused('two lengths', post('Content-Length: 5\r\nContent-Length: 6\r\n', 'hello!')),
  refused('two equal lengths', post('Content-Length: 5\r\nContent-Length: 5\r\n', 'hello')),
  refused('a list of lengths', post('Content-Length: 5, 5\r\n', 'hello')),
  ...['+5', '-5', '0x5', '5.0', '5 5', '05', '1e1', '', '99999999999999999999', '5a'].map((value) =>
    refused(`the length ${JSON.stringify(value)}`, post(`Content-Length: ${value}\r\n`, 'hello')),
  ),
  ...[
    'identity',
    'identity, chunked',
    'chunked, identity',
    'chunked, chunked',
    'gzip, chunked',
    'xchunked',
    'chunked;a=b',
    ', chunked',
    '"chunked"',
    'chunked\v',
  ].map((value) =>
    refused(`the transfer encoding ${JSON.stringify(value)}`, post(`Transfer-Encoding: ${value}\r\n`, `0\r\n\r\n`)),
  ),
  refused('two transfer encodings', post(`${CHUNKED}${CHUNKED}`, '0\r\n\r\n')),
  refused('two transfer encodings, the second unknown', post(`${CHUNKED}Transfer-Encoding: x\r\n`, '0\r\n\r\n')),
  refused('a space before the colon', post('Transfer-Encoding : chunked\r\n', '0\r\n\r\n')),
  refused('a folded header', post('Transfer-Encoding:\r\n chunked\r\n', '0\r\n\r\n')),
  refused('chunks with HTTP/1.0', `POST /x HTTP/1.0\r\nHost: a.example\r\n${CHUNKED}\r\n0\r\n\r\n`),
  refused('chunks on GET', `${get(CHUNKED)}0\r\n\r\n`),
  refused('a body on GET', `${get('Content-Length: 5\r\n')}hello`),
  refused('a body on HEAD', 'HEAD /x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello'),
  ...['zz', '-1', '0x5', '+5', ' 5', '5 ', '', 'fffffffffffffffff', '5\n'].map((size) =>
    refused(`the chunk size ${JSON.stringify(size)}`, post(CHUNKED, `${size}\r\nhello\r\n0\r\n\r\n`)),
  ),
  refused('a chunk longer than its size', post(CHUNKED, '3\r\nhello\r\n0\r\n\r\n')),
  refused('a chunk that ends in a bare line feed', post(CHUNKED, '5\nhello\n0\n\n')),
  refused('a bare line feed in the head', 'GET /x HTTP/1.1\nHost: a.example\n\n'),
  refused('a bare carriage return in a value', get('X-A: a\rX-B: b\r\n')),
  refused('NUL in a value', get('X-A: a\0b\r\n')),
  refused('NUL in a name', get('X\0A: b\r\n')),
  refused('a header without a colon', get('X-A\r\n')),
  refused('a header without a name', get(': a\r\n')),
  refused('a space in a name', get('X A: b\r\n')),
  refused('a space before the first header', 'GET /x HTTP/1.1\r\n Host: a.example\r\n\r\n'),
  refused('an underscore in a name', get('X_Gateway_Api_Key: k\r\n')),
  refused('more than a hundred headers', get(Array.from({ length: 100 }, (_, k) => `X-${k}: 1\r\n`).join(''))),
  refused('headers of more than 16 KB', get(`X-A: ${'a'.repeat(17_000)}\r\n`)),

  refused('no Host', 'GET /x HTTP/1.1\r\n\r\n'),
  refused('no Host with HTTP/1.0', 'GET /x HTTP/1.0\r\n\r\n'),
  refused('two Hosts', get('Host: b.example\r\n')),
  refused('two equal Hosts', get('Host: a.example\r\n')),
  ...[
    '',
    'a b',
    'a,b',
    'a.example/x',
    'http://a',
    'user@a',
    'a.example:x',
    'a.example:123456',
    '[::1',
    'a.example#@b',
    'a.example:4000/#@b',
    '\u00e9',
    'a..b@',
    '-',
    'a?b',
  ].map((host) => refused(`the Host ${JSON.stringify(host)}`, `GET /x HTTP/1.1\r\nHost: ${host}\r\n\r\n`)),
  ...['Authorization', 'X-Gateway-Api-Key', 'x-api-key', 'Content-Type', 'X-Gateway-Provider', 'X-Gateway-Config'].map(
    (name) => refused(`${name} twice`, get(`${name}: a\r\n${name.toLowerCase()}: b\r\n`)),
  ),

  ...[
    'http://a.example/x',
    'https://b/x',
    '*',
    'a.example:80',
    'x',
    '//x',
    '//b.example/x',
    '/x//y',
    '/x/../y',
    '/x/..',
    '/./x',
    '/.',
    '/..',
    '/%2e%2e/x',
    '/%2E./x',
    '/.%2e/x',
    '/x/%2e',
    '/a%2f..%2fb',
    '/a%2f%2e%2e',
    '/a\\b',
    '/a%5cb',
    '/a%00',
    '/a%0a',
    '/a%7f',
    '/a%c2%85',
    '/%',
    '/%2',
    '/%zz',
    '/%c0%af',
    '/%ff',
    '/a;b',
    '/a"b',
    '/a<b',
    '/a|b',
    '/a^b',
    '/a`b',
    '/{a}',
    '/x#y',
    '/x?a#b',
    '/\u00e9',
    '/a\x7f',
    '/a\tb',
  ].map((target) => refused(`the target ${JSON.stringify(target)}`, get('', target))),
  refused('a target of more than 8 KB', get('', `/${'a'.repeat(8200)}`)),
  ...['HTTP/1.2', 'HTTP/2.0', 'HTTP/0.9', 'HTTP/1', 'http/1.1', 'HTTP/1.1x', 'HTTP/11', 'ICE/1.0'].map((version) =>
    refused(`the version ${version}`, `GET /x ${version}\r\nHost: a.example\r\n\r\n`),
  ),
  refused('a lower-case method', 'get /x HTTP/1.1\r\nHost: a.example\r\n\r\n'),
  refused('an unknown method', 'FOO /x HTTP/1.1\r\nHost: a.example\r\n\r\n'),
  refused('a tab in the request line', 'GET\t/x HTTP/1.1\r\nHost: a.example\r\n\r\n'),
  refused(
    'an upgrade to h2c',
    get('Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n'),
  ),
  refused('a WebSocket upgrade off the realtime route', get('Connection: upgrade\r\nUpgrade: websocket\r\n')),
  refused('the HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'),
  refused('an unknown expectation', post('Expect: 200-ok\r\nContent-Length: 0\r\n')),
  refused('two expectations', post('Expect: 100-continue, x\r\nContent-Length: 0\r\n')),
  refused('a TLS greeting', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'),
  refused('CONNECT', 'CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n'),
];

export interface RawAnswer {
  readonly status: number;
  readonly headers: string;
  readonly body: string;
}

/** Splits what a connection answered into answers; every answer of these tests has a length. */
export function parseAnswers(text: string): RawAnswer[] {
  const answers: RawAnswer[] = [];
  for (let at = 0; at < text.length; ) {
    const end = text.indexOf('\r\n\r\n', at);
    const status = /^HTTP\/1\.1 (\d{3}) /.exec(text.slice(at));
    if (end < 0 || !status) throw new Error(`not an answer: ${JSON.stringify(text.slice(at, at + 200))}`);
    const headers = text.slice(at, end).toLowerCase();
    const length = Number(/\r\ncontent-length: (\d+)/.exec(headers)?.[1] ?? 0);
    answers.push({ status: Number(status[1]), headers, body: text.slice(end + 4, end + 4 + length) });
    at = end + 4 + length;
  }
  return answers;
}

/**
 * Writes bytes to a fresh connection, in one piece or byte by byte, and resolves with everything that came back once the
 * server closed or stayed silent after `finished` said so.
 */
export function exchange(
  port: number,
  bytes: string,
  split: boolean,
  finished: (text: string) => boolean,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    let text = '';
    let closed = false;
    const timer = setTimeout(
      () => socket.destroy(new Error(`no end after ${JSON.stringify(text.slice(0, 300))}`)),
      5_000,
    );
    socket.on('data', (data) => {
      text += data.toString('latin1');
      if (finished(text)) socket.end();
    });
    let failure: Error | null = null;
    socket.on('error', (error: Error & { code?: string }) => {
      // A server that has refused may reset what is still being sent.
      if (error.code !== 'EPIPE' && error.code !== 'ECONNRESET') failure = error;
    });
    socket.on('close', () => {
      closed = true;
      clearTimeout(timer);
      if (failure) reject(failure);
      else resolve(text);
    });
    socket.on('connect', async () => {
      const data = Buffer.from(bytes, 'latin1');
      if (!split) {
        socket.write(data);
        return;
      }
      for (let i = 0; i < data.length && !closed; i++) {
        socket.write(data.subarray(i, i + 1));
        await new Promise((done) => setImmediate(done));
      }
    });
  });
}
