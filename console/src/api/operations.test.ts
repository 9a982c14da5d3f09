import { expectTypeOf, test } from 'vitest';
import type { Operations } from '../../types/api.ts';
import type { LimitAlert, Session } from './client.ts';

// `tsc -p console` checks these: each ts-expect-error is an error itself where the line below it compiles.
test('a member that the API does not take or answer does not compile in the console', () => {
  type ChangeUser = Operations['PUT /v1/admin/users/{userId}'];
  expectTypeOf<ChangeUser['input']['body']>().toExtend<{ email?: string } | undefined>();
  const input: ChangeUser['input'] = { path: { userId: 'u' }, body: { email: 'ada@example.com' } };
  // @ts-expect-error the body names no `mail`
  input.body = { mail: 'ada@example.com' };
  // @ts-expect-error the path needs the user
  input.path = {};
  // @ts-expect-error the answer has no `updated`
  expectTypeOf<ChangeUser['answer']['updated']>().toBeBoolean();
  // @ts-expect-error there is no such operation
  expectTypeOf<Operations['GET /v1/nothing']>().toBeNever();
});

test('what only the console calls is typed as well', () => {
  expectTypeOf<Session>().toEqualTypeOf<Operations['GET /console/api/session']['answer']>();
  expectTypeOf<Session['user']['role']>().toEqualTypeOf<'owner' | 'admin' | 'member'>();
  // @ts-expect-error a session has no `token`
  expectTypeOf<Session['token']>().toBeString();
});

test('what a list answers keeps the types of its items', () => {
  expectTypeOf<LimitAlert['alert']>().toEqualTypeOf<'threshold' | 'exhausted' | 'unpriced'>();
  expectTypeOf<LimitAlert['recipient']>().toEqualTypeOf<string | null>();
});
