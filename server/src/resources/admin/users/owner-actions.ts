/** What is done to one user beside the five verbs: a sign-in link, and the handing over of an organisation. */
import { z } from 'zod';
import { mayUseLinks } from '../../../auth/auth-settings.ts';
import { linkUrl, newLink } from '../../../auth/console-session.ts';
import { SluiceError } from '../../../kernel/errors.ts';
import { toIso } from '../../body-fields.ts';
import { emptyAnswer } from '../../define.ts';
import type { ItemAction } from '../../spec.ts';
import { checkGives, checkGivesIn } from '../give.ts';
import { rankOf } from '../rank.ts';

type UserAction<R> = ItemAction<'users', never, unknown, unknown, R>;

export const signInLink: UserAction<{ sign_in_link: string; expires_at: string }> = {
  method: 'POST',
  verb: 'update',
  name: 'sign-in-link',
  summary: 'Make a sign-in link for a user',
  description:
    'For users of the same or a lower role. Nothing is sent: hand the link over yourself. It works once, for 15 minutes, and is shown only here. A key needs every scope that the user has.',
  response: z.object({ sign_in_link: z.string(), expires_at: z.string() }),
  audit: { action: 'create', resource: 'console-sessions' },
  secretAnswer: true,
  run: async (call, user) => {
    const { tx, publicUrl } = call;
    // The link gives all that the user may do.
    await checkGives(call, user.role, null);
    const joined = await tx.list('workspace_members', { where: { user_id: user.id, status: 'active' } });
    for (const place of joined) await checkGivesIn(call, place, null);
    if (!mayUseLinks(await tx.organisation(), user.role)) {
      const message = 'In this organisation only owners sign in by a link (auth_settings.disable_link_sign_in).';
      throw new SluiceError('conflict', message);
    }
    const { token, row } = newLink(user, await tx.now());
    await tx.insert('console_sessions', row);
    call.audit(user.id, { before: null, after: { user_id: user.id, expires_at: toIso(row.expires_at) } });
    return { answer: { sign_in_link: linkUrl(publicUrl, token), expires_at: toIso(row.expires_at) } };
  },
};

export const handOver: UserAction<object> = {
  method: 'POST',
  verb: 'update',
  name: 'ownership',
  summary: 'Hand the organisation over to an admin',
  description: 'For an owner who is signed in. The admin becomes an owner, and the owner an admin.',
  response: emptyAnswer,
  audit: 'manage',
  run: async (call, next) => {
    const { tx, clock, principal } = call;
    if (principal.kind !== 'user' || principal.userId === null || (await rankOf(call)) !== 'owner') {
      throw new SluiceError('forbidden', 'Only an owner who is signed in hands the organisation over.');
    }
    if (next.role !== 'admin') {
      throw new SluiceError(
        'conflict',
        `The organisation goes to an admin, and this user is ${next.role}. Change the role first.`,
      );
    }
    for (const [id, role] of [
      [next.id, 'owner'],
      [principal.userId, 'admin'],
    ] as const) {
      await tx.update('users', { id }, { role, last_updated_at: clock.now() });
      tx.changed({ workspaceId: null, topic: 'users', entityId: id });
    }
    call.audit(next.id, {
      before: { owner: principal.userId, role: next.role },
      after: { owner: next.id, role: 'owner' },
    });
    return { answer: {} };
  },
};
