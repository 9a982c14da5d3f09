/** A real SMTP server on loopback that keeps what it takes. */
import type { AddressInfo } from 'node:net';
import { SMTPServer } from 'smtp-server';

export interface SinkMail {
  readonly from: string;
  readonly to: readonly string[];
  /** The whole message, headers first. */
  readonly raw: string;
}

export interface MailSink {
  readonly port: number;
  readonly mails: SinkMail[];
  /** User names that signed in, in order. */
  readonly logins: string[];
  /** Asked before a recipient is accepted; an answer is `[code, text]` of the refusal, `drop` cuts the connection. */
  refuse: (address: string) => readonly [number, string] | 'drop' | null;
  close(): Promise<void>;
}

export async function mailSink(login?: { user: string; password: string }): Promise<MailSink> {
  const mails: SinkMail[] = [];
  const logins: string[] = [];
  const server = new SMTPServer({
    hideSTARTTLS: true,
    disableReverseLookup: true,
    authOptional: login === undefined,
    allowInsecureAuth: true,
    onAuth(auth, _session, callback) {
      if (auth.username !== login?.user || auth.password !== login?.password) {
        const said = `535 bad login with ${auth.password}`;
        return callback(Object.assign(new Error(said), { responseCode: 535 }));
      }
      logins.push(auth.username ?? '');
      callback(null, { user: auth.username });
    },
    onRcptTo({ address }, session, callback) {
      const refusal = sink.refuse(address);
      if (refusal === null) return callback();
      if (refusal === 'drop') {
        for (const connection of server.connections) if (connection.id === session.id) connection._socket.destroy();
        return;
      }
      callback(Object.assign(new Error(refusal[1]), { responseCode: refusal[0] }));
    },
    onData(stream, session, callback) {
      const parts: Buffer[] = [];
      stream.on('data', (part: Buffer) => parts.push(part));
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope;
        mails.push({
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map(({ address }) => address),
          raw: Buffer.concat(parts).toString('utf8'),
        });
        callback();
      });
    },
  });
  // Connections that are cut are part of the tests.
  server.on('error', () => undefined);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', () => resolve()));
  const sink: MailSink = {
    port: (server.server.address() as AddressInfo).port,
    mails,
    logins,
    refuse: () => null,
    close: () => new Promise((resolve) => server.close(() => resolve())),
  };
  return sink;
}
