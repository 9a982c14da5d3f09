/** Mails to people, sent beside requests. */
import { Service } from '../services.ts';

export interface Mails {
  /** Counts a mail to `email` that a signed-in user asks for. Throws `too_many_requests`. */
  admitUser(userId: string, email: string): Promise<void>;
  /** Queues a mail to one address; plain text. A failure is logged. */
  post(letter: { readonly to: string; readonly subject: string; readonly text: string }): void;
}

export const MAILS = new Service<Mails>('mail server');
