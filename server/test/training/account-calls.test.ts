/** Calls of an account for files and jobs: which are made, repeated, and refused. */
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import type { Principal } from '../../src/auth/principal.ts';
import { adapterContext } from '../../src/gateway/account-access.ts';
import { systemClock, TestClock } from '../../src/kernel/clock.ts';
import { SluiceError } from '../../src/kernel/errors.ts';
import { IN_ITS_STEAD } from '../../src/operations/dialects/provider-error.ts';
import type { FineTuningJob } from '../../src/operations/training.ts';
import { createTokenCache } from '../../src/providers/token-cache.ts';
import type { Account } from '../../src/runtime/object-call.ts';
import {
  account,
  answerOf,
  asked,
  call,
  create,
  GUARD,
  job,
  on,
  seen,
  sent,
  training,
  useBacked,
} from '../support/backed-objects.ts';
import { refusal } from './support.ts';

useBacked();

describe('calls of an account', () => {
  it('carry the operator’s headers to its own host only', async () => {
    sent.length = 0;
    await create('w1');
    expect(sent.map(({ url, headers }) => [url.host, [...headers]])).toEqual([
      ['host', ['accept', 'x', 'x-team', 'search']],
      ['elsewhere', ['accept', 'x']],
    ]);
    expect(sent.every((one) => one.storedCredential && one.organisationId === 'o1')).toBe(true);
  });

  it('are answered without the credentials they carried, also those made for one call', async () => {
    const echo = (text: string) => ({
      status: 400,
      headers: { 'content-type': 'text/top-secret-key', etag: '1' },
      lines: [],
      stream: Readable.from([Buffer.from(text)], { objectMode: false }),
    });
    const context = adapterContext(
      {
        clock: systemClock,
        egress: GUARD,
        tokens: createTokenCache(() => systemClock.now()),
        fetcher: {
          send: async ({ headers, url }) => echo(JSON.stringify({ headers, url: url.href })),
          async close() {},
        },
      },
      account,
      { organisationId: 'o1' },
    );
    const answer = await context.call({
      method: 'GET',
      url: new URL('https://host/o?X-Amz-Signature=signed-address-0&X-Goog-Credential=a%2Fb%2Fcdefgh&part=1'),
      headers: [
        ...['authorization', 'Bearer ya29.minted-token', 'x-amz-security-token', 'session-token-1', 'x-plain', 'stays'],
        ...['Authorization', 'AWS4-HMAC-SHA256 Credential=AKIA/x, SignedHeaders=host, Signature=0123456789abcdef'],
        ...['x-api-key', 'top-secret-key'],
      ],
      body: null,
    });
    expect(answer.headers).toEqual({ 'content-type': 'application/octet-stream', etag: '1' });
    const text = await answer.text();
    for (const secret of ['minted', 'session-token', 'top-secret', '0123456789', 'signed-address', 'cdefgh']) {
      expect(text).not.toContain(secret);
    }
    expect(text).toContain('stays');
    expect(text).toContain('part=1');
  });

  it('may use the server’s identity only when the account is stored', async () => {
    await create('w1');
    expect(seen?.ambient).toBeDefined();
    await create('w1', {}, { account: { ...account, stored: null } });
    expect(seen?.ambient).toBeUndefined();
  });

  it('read gateway headers of gateway_options before those of the request, and none of the body goes on', async () => {
    const header = (name: string) =>
      name === 'x-gateway-object-store-bucket' ? 'of-request' : name === 'x-gateway-a' ? 'a' : undefined;
    await create(
      'w1',
      { gateway_options: { 'x-gateway-virtual-key': 'cloud', 'x-gateway-object-store-bucket': 'of-options' } },
      { header },
    );
    expect([seen?.header('x-gateway-object-store-bucket'), seen?.header('x-gateway-a')]).toEqual(['of-options', 'a']);
  });
});

describe('a create request', () => {
  it('is checked by the adapter before anything is looked up or sent', async () => {
    asked.length = 0;
    await expect(create('w1', { training_file: 'unknown', seed: 1 })).rejects.toMatchObject({
      kind: 'unsupported_parameter',
      param: 'seed',
    });
    expect(asked).toEqual([]);
  });

  it('may not name a model in provider_options that the account does not allow', async () => {
    expect(await refusal(() => create('w1', { provider_options: { model: 'forbidden' } }))).toMatchObject({
      status: 400,
    });
  });

  it('may not name such a model for a batch either', async () => {
    const batch = {
      input_file_id: 'f',
      endpoint: '/v1/chat/completions',
      completion_window: '24h',
      model: 'forbidden',
    };
    expect(
      await refusal(() => training.handle(call('batch_create', 'w1', { body: Buffer.from(JSON.stringify(batch)) }))),
    ).toMatchObject({ status: 400, message: expect.stringContaining('not enabled') });
  });

  it('may not leave the account that the key’s own config pins', async () => {
    const principal = {
      ...call('finetune_create', 'w1').principal,
      defaults: { config_id: 'pc-x', allow_config_override: false },
    };
    expect(
      await refusal(() =>
        create('w1', { gateway_options: { 'x-gateway-virtual-key': 'other' } }, { principal: principal as Principal }),
      ),
    ).toMatchObject({ status: 400, param: 'gateway_options' });
    expect(
      await answerOf(
        create('w1', { gateway_options: { 'x-gateway-virtual-key': 'cloud' } }, { principal: principal as Principal }),
      ),
    ).toBeTruthy();
  });

  it('shows a dry run with every secret masked, in headers and address alike', async () => {
    asked.length = 0;
    const shown = await answerOf(create('w1', {}, { dryRun: true }));
    expect(shown).toMatchObject({ request: { url: 'https://host/jobs?sig=***' } });
    // Whatever is not known to be harmless is masked, whether it is known to be a secret or not.
    expect((shown.request as { headers: unknown }).headers).toEqual({
      'x-api-key': '***',
      accept: 'application/json',
      'x-handle': '***',
    });
    expect(asked).toEqual([]);
  });
});

describe('cancelling', () => {
  const cancel = () => training.handle(call('finetune_cancel', 'w1', { params: { fine_tuning_job_id: 'job-1' } }));

  it('of what has ended is 400, however the provider takes it', async () => {
    await create('w1');
    const refusals: (() => FineTuningJob)[] = [
      // It accepts and does nothing.
      () => job('succeeded'),
      () => {
        throw new SluiceError('provider_error', 'conflict', {
          provider: { status: 409, type: 'api_error', code: null },
        });
      },
    ];
    for (const refused of refusals) {
      on.cancel = refused;
      expect(await refusal(() => cancel())).toMatchObject({ status: 400, code: 'AB01' });
    }
  });

  it('passes on every other refusal, without the credential', async () => {
    on.cancel = () => {
      throw new SluiceError('provider_error', 'top-secret-key may not', { provider: IN_ITS_STEAD.forbidden });
    };
    expect(await refusal(() => cancel())).toMatchObject({
      status: 403,
      type: 'permission_error',
      message: '*** may not',
    });
    on.cancel = () => job('cancelled');
    expect(await answerOf(cancel())).toMatchObject({ status: 'cancelled' });
  });
});

describe('repeating what a config says', () => {
  const retry = { attempts: 2, statusCodes: new Set([429, 502]), useRetryAfter: true };

  async function contextOf(statuses: number[], account_: Account = { ...account, retry }) {
    const clock = new TestClock();
    const made: string[] = [];
    const attempts: (number | null)[] = [];
    const context = adapterContext(
      {
        clock,
        egress: GUARD,
        tokens: createTokenCache(() => clock.now()),
        fetcher: {
          async send(request) {
            made.push(request.method);
            const status = statuses.shift() ?? 200;
            if (status === 0) throw new SluiceError('upstream_unreachable', 'gone');
            return { status, headers: { 'retry-after': '3' }, lines: [], stream: Readable.from([Buffer.from('{}')]) };
          },
          async close() {},
        },
      },
      account_,
      { organisationId: 'o1', attempted: ({ status }) => attempts.push(status) },
    );
    const call_ = async (method: 'GET' | 'POST') => {
      const answer = context.call({
        method,
        url: new URL('https://host/x'),
        headers: [],
        body: method === 'GET' ? null : Buffer.from('{}'),
      });
      const ended = answer.then(
        ({ status }) => status,
        (error: unknown) => (error instanceof SluiceError ? error.kind : String(error)),
      );
      for (let second = 0; second < 12; second++) {
        await new Promise((resolve) => setImmediate(resolve));
        await clock.advance(1000);
      }
      return ended;
    };
    return { call: call_, made, attempts };
  }

  it('repeats reads, after the time the provider asks for, each an attempt of the record', async () => {
    const world = await contextOf([429, 0, 200]);
    expect(await world.call('GET')).toBe(200);
    expect(world.attempts).toEqual([429, null, 200]);
  });

  it('gives the last answer when every repetition failed', async () => {
    expect(await (await contextOf([429, 429, 429, 200])).call('GET')).toBe(429);
    expect(await (await contextOf([0, 0, 0, 200])).call('GET')).toBe('upstream_unreachable');
  });

  it('never repeats what creates or changes, nor without such a config', async () => {
    const creating = await contextOf([502, 200]);
    expect([await creating.call('POST'), creating.made]).toEqual([502, ['POST']]);
    const plain = await contextOf([502, 200], account);
    expect([await plain.call('GET'), plain.made]).toEqual([502, ['GET']]);
  });
});
