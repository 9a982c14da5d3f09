/** The mailer over SMTP: one connection for each mail. The library is loaded with the first one. */
import type { Secret } from '../kernel/secret.ts';
import { type Mail, type Mailer, MailFailure } from './mailer.ts';

export interface SmtpOptions {
  readonly host: string;
  readonly port: number;
  /** TLS from the first byte (`smtps`); otherwise STARTTLS where the server offers it. */
  readonly secure: boolean;
  readonly login: { readonly user: string; readonly password: Secret } | null;
  /** Shown as the sender, `Sluice <alerts@example.com>` in two parts. */
  readonly from: { readonly name: string; readonly address: string };
}

const CONNECT_MS = 10_000;
const IDLE_MS = 20_000;
const MAX_LINE = 200;
/** Codes of errors that are about this mail and not about the server or the way to it. */
const ABOUT_THE_MAIL: ReadonlySet<string> = new Set(['EENVELOPE', 'EMESSAGE']);

/** A password is sent in the clear to this machine only: elsewhere the connection must have become TLS. */
export function needsTls({ host, secure, login }: Pick<SmtpOptions, 'host' | 'secure' | 'login'>): boolean {
  return login !== null && !secure && !/^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}

export function smtpMailer(options: SmtpOptions): Mailer {
  const { host, port, secure, login, from } = options;
  const opened = new Set<{ close(): void }>();
  return {
    async send({ id, to, subject, text }: Mail) {
      const { createTransport } = await import('nodemailer');
      const transport = createTransport({
        host,
        port,
        secure,
        requireTLS: needsTls(options),
        ...(login === null ? {} : { auth: { user: login.user, pass: login.password.reveal() } }),
        connectionTimeout: CONNECT_MS,
        greetingTimeout: CONNECT_MS,
        socketTimeout: IDLE_MS,
        dnsTimeout: CONNECT_MS,
        disableFileAccess: true,
        disableUrlAccess: true,
      });
      opened.add(transport);
      try {
        await transport.sendMail({
          from,
          // As objects addresses are taken as they are; texts would be parsed, as lists even.
          to: { name: '', address: to },
          subject: oneLine(subject),
          text,
          messageId: `<${id}@${from.address.slice(from.address.indexOf('@') + 1)}>`,
          headers: { 'auto-submitted': 'auto-generated' },
        });
      } catch (error) {
        throw failureOf(error);
      } finally {
        opened.delete(transport);
        transport.close();
      }
    },
    async close() {
      for (const transport of opened) transport.close();
    },
  };
}

function failureOf(error: unknown): MailFailure {
  const { code, responseCode, response } = error as { code?: string; responseCode?: number; response?: string };
  const permanent = responseCode !== undefined && responseCode >= 500 && code !== undefined && ABOUT_THE_MAIL.has(code);
  // What the server said to a login may repeat it; only its number is shown.
  const said = code === 'EAUTH' ? `${responseCode ?? 'login refused'}` : (response ?? code ?? 'no answer');
  return new MailFailure(`The mail server refused or failed: ${oneLine(said)}`.slice(0, MAX_LINE), permanent);
}

/** Line breaks and other controls become spaces: a header must not end where a name in it says so. */
function oneLine(text: string): string {
  return text.replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ').trim();
}
