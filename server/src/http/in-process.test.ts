import { describe, expect, it } from 'vitest';
import { InProcessResponse, inProcessRequest } from './in-process.ts';

const respond = (maxBytes: number) =>
  new InProcessResponse(inProcessRequest('POST', '/v1/chat/completions', {}), maxBytes);

describe('an answer without a socket', () => {
  it('is kept with its status and headers up to its limit', async () => {
    const response = respond(6);
    response.writeHead(201, ['X-Name', 'value']);
    response.write('abc');
    response.end('def');
    expect(await response.collected).toEqual({
      status: 201,
      headers: { 'x-name': 'value' },
      body: Buffer.from('abcdef'),
      complete: true,
    });
  });

  it('is cut like that of a client that left when it grows past its limit', async () => {
    const response = respond(6);
    let left = false;
    response.on('close', () => {
      left = true;
    });
    response.writeHead(200, []);
    response.write('abcd');
    response.write('efg');
    response.end('h');
    expect(await response.collected).toMatchObject({ status: 200, body: Buffer.alloc(0), complete: false });
    expect([response.destroyed, left]).toEqual([true, true]);
  });
});
