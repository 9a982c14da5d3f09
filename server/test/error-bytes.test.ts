/** How each plane says each kind of error, byte by byte: clients and their retries are built on it. */
import { describe, expect, it } from 'vitest';
import { adminError } from '../src/admin/respond.ts';
import { ERRORS, type ErrorKind, SluiceError } from '../src/kernel/errors.ts';
import { silentLog } from '../src/kernel/log.ts';
import { errorBody } from '../src/operations/dialects/errors.ts';

const MESSAGE = 'Something is wrong here; do this.';
const PLANES = {
  admin: (error: SluiceError) => adminError(error, 'id', silentLog),
  openai: (error: SluiceError) => errorBody(error, 'openai'),
  anthropic: (error: SluiceError) => errorBody(error, 'anthropic'),
} as const;

const FORMS: Readonly<Record<string, (kind: ErrorKind) => SluiceError>> = {
  plain: (kind) => new SluiceError(kind, MESSAGE),
  'with a field, problems and errors': (kind) =>
    new SluiceError(kind, MESSAGE, {
      param: 'a.b',
      problems: [{ param: 'a.b', message: MESSAGE }],
      errors: ['path: a.b, message: is wrong'],
    }),
};

describe.each(Object.entries(PLANES))('%s', (_plane, say) => {
  it.each(Object.keys(FORMS))('says every kind with its status and bytes: %s', (form) => {
    const said = Object.keys(ERRORS).map((kind) => {
      const { status, body } = say((FORMS[form] ?? FORMS.plain)?.(kind as ErrorKind) as SluiceError);
      return `${kind} ${status} ${body}`;
    });
    expect(said.length).toBeGreaterThan(30);
    expect(said).toMatchSnapshot();
  });
});
