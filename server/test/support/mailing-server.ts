/** A whole server with a real mail server, for tests of what Sluice mails to users. */
import { expect } from 'vitest';
import { mailSink, type SinkMail } from './mail-sink.ts';
import { startServer, type TestServer } from './server.ts';

export interface ConsoleAnswer {
  readonly status: number;
  readonly text: string;
  /** `name=value` of the cookie that was set; empty without one. */
  readonly cookie: string;
}

export interface MailingServer extends TestServer {
  /** Calls the server as a browser does that shows a page of `publicUrl`. `on` is the URL of another server. */
  send(
    method: string,
    path: string,
    body?: unknown,
    headers?: Record<string, string>,
    on?: string,
  ): Promise<ConsoleAnswer>;
  /** The mails to this address so far, oldest first. */
  mailsTo(email: string): SinkMail[];
  /** The texts of the mails to this address, oldest first, once there are `count`. */
  mailed(email: string, count?: number): Promise<string[]>;
}

/** Starts both; `stop` ends both. Without `publicUrl` it is the address that the server listens on, for real browsers. */
export async function startMailingServer(publicUrl?: string, env: Record<string, string> = {}): Promise<MailingServer> {
  const sink = await mailSink();
  const server = await startServer({
    SLUICE_SMTP_URL: `smtp://127.0.0.1:${sink.port}`,
    SLUICE_MAIL_FROM: 'Sluice <sluice@x.example>',
    ...env,
    ...(publicUrl === undefined ? {} : { SLUICE_PUBLIC_URL: publicUrl }),
  });
  const mailsTo = (email: string) => sink.mails.filter(({ to }) => to.includes(email));
  return {
    ...server,
    mailsTo,
    async send(method, path, body, headers = {}, on = server.url) {
      const answer = await fetch(`${on}${path}`, {
        method,
        headers: { 'content-type': 'application/json', origin: publicUrl ?? on, ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
      const cookie = answer.headers.get('set-cookie')?.split(';', 1)[0] ?? '';
      return { status: answer.status, text: await answer.text(), cookie };
    },
    async mailed(email, count = 1) {
      await expect.poll(() => mailsTo(email).length, { timeout: 10_000 }).toBe(count);
      return mailsTo(email).map(textOf);
    },
    async stop() {
      await server.stop();
      await sink.close();
    },
  };
}

/** The text of a mail as a reader sees it: without headers, and decoded. */
function textOf({ raw }: SinkMail): string {
  const body = raw
    .slice(raw.indexOf('\r\n\r\n') + 4)
    .replace(/=\r\n/g, '')
    .replaceAll('\r\n', '\n');
  const bytes = body.replace(/=([0-9A-F]{2})/g, (_code, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)));
  return /^content-transfer-encoding: quoted-printable/im.test(raw) ? Buffer.from(bytes, 'latin1').toString() : body;
}
