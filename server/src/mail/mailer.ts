/** Mail as the rest of Sluice knows it. The adapter that speaks SMTP is `smtp.ts`. */

import type { Closable } from '../kernel/lifecycle.ts';

export interface Mail {
  /** The same for each try, so that a mail that arrives twice can be recognised; letters, digits and hyphens. */
  readonly id: string;
  /** One address, checked where it was stored. */
  readonly to: string;
  readonly subject: string;
  /** Plain text. */
  readonly text: string;
}

export interface Mailer extends Closable {
  /** Resolves when the mail server has taken the mail. Rejects with a MailFailure. */
  send(mail: Mail): Promise<void>;
}

export class MailFailure extends Error {
  /** True when trying again cannot help: the server refuses this recipient or this mail for good. */
  readonly permanent: boolean;

  /** @param message one line without secrets, shown to people */
  constructor(message: string, permanent: boolean) {
    super(message);
    this.name = 'MailFailure';
    this.permanent = permanent;
  }
}
