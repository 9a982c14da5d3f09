/** Small answers for programs that set a client up. */
import { z } from 'zod';
import { emptyAnswer, type Resource } from './define.ts';
import { action } from './resource.ts';

const testAuth = action({
  id: 'utils.test-auth',
  method: 'GET',
  path: '/utils/test-auth',
  summary: 'Test a credential',
  description: 'Answers `{}` to every API key and sign-in that is valid, whatever its scopes, and 401 to any other.',
  tag: 'Utilities',
  auth: 'any_credential',
  scopes: [],
  tenant: 'none',
  params: null,
  query: z.strictObject({}),
  body: null,
  response: emptyAnswer,
  writes: false,
  audit: null,
  run: async () => ({}),
});

export const utils: Resource = { actions: [testAuth] };
