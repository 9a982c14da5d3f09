/** Files that `npm run console` made, some with packed copies beside them. */
import { existsSync } from 'node:fs';
import path from 'node:path';
import send from '@fastify/send';
import type { FastifyReply, FastifyRequest } from 'fastify';

/** Encodings a file may be packed in, best first, and the ending of its packed copy. */
const PACKED = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

/** Whether an `accept-encoding` header takes an encoding; one with a weight of zero is refused. */
function takes(header: string, encoding: string): boolean {
  return header.split(',').some((item) => {
    const [name = '', ...parameters] = item.split(';').map((part) => part.trim().toLowerCase());
    return (name === encoding || name === '*') && !parameters.some((parameter) => /^q=0(?:\.0*)?$/.test(parameter));
  });
}

/**
 * Answers with `file` of the folder `root`, whole or in ranges, packed where the client takes it and a packed copy
 * exists. Headers of the reply that are set before stay. The caller has judged `file`: it must exist, and its name is
 * never a path from outside.
 */
export async function sendBuilt(request: FastifyRequest, reply: FastifyReply, root: string, file: string) {
  const header = String(request.headers['accept-encoding'] ?? '');
  const packed = PACKED.find(([name, ending]) => takes(header, name) && existsSync(path.join(root, file + ending)));
  const [encoding, ending] = packed ?? [null, ''];
  const found = await send(request.raw, encodeURI(file + ending), { root, cacheControl: false, index: false });
  reply.code(found.statusCode).headers(found.headers).header('vary', 'accept-encoding');
  if (encoding !== null && found.type === 'file') {
    const type = send.mime.getType(file) ?? 'application/octet-stream';
    reply.header('content-encoding', encoding);
    reply.header('content-type', send.isUtf8MimeType(type) ? `${type}; charset=utf-8` : type);
  }
  return reply.send(found.stream);
}
