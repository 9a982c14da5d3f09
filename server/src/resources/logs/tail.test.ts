/** Following requests as they are recorded: what comes, what does not, and what ends it. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { refused } from '../../../test/support/accounts.ts';
import { logRow, naiveLogs } from '../../../test/support/log-rows.ts';
import { type Organisation, startOrganisation } from '../../../test/support/organisation.ts';
import { TestClock } from '../../kernel/clock.ts';
import { SluiceError } from '../../kernel/errors.ts';
import type { LogArrivals, LogRow } from '../../telemetry/log-query.ts';

const { store, services } = naiveLogs();
const SECOND = 1_000;

/** Counts who waits for the next second. */
class CountingClock extends TestClock {
  pauses = 0;

  override after(ms: number, fn: () => void): () => void {
    if (ms !== SECOND) return super.after(ms, fn);
    this.pauses += 1;
    let waits = true;
    const over = () => {
      if (waits) this.pauses -= 1;
      waits = false;
    };
    const cancel = super.after(ms, () => {
      over();
      fn();
    });
    return () => {
      over();
      cancel();
    };
  }
}

const clock = new CountingClock(Date.now());
const stop = new AbortController();
let on: Organisation;

beforeAll(async () => {
  on = await startOrganisation('sqlite', {
    clock,
    admin: {
      services,
      stopping: stop.signal,
    },
  });
});
afterAll(async () => {
  // The client keeps connections that it has not used yet.
  on.admin.app.server.closeAllConnections();
  await on.admin.close();
});
beforeEach(() => {
  store.rows = [];
});

interface Event {
  readonly event: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests look into events of every kind
  readonly data: any;
}

class Follower {
  readonly status: number;
  readonly headers: Headers;
  readonly #reader: ReadableStreamDefaultReader<Uint8Array>;
  readonly #leave: AbortController;
  #text = '';
  comments = 0;

  constructor(answer: Response, leave: AbortController) {
    if (answer.body === null) throw new Error('there is no body');
    this.status = answer.status;
    this.headers = answer.headers;
    this.#reader = answer.body.getReader();
    this.#leave = leave;
  }

  /** The next event; null at the end. */
  async next(): Promise<Event | null> {
    for (;;) {
      const end = this.#text.indexOf('\n\n');
      if (end >= 0) {
        const block = this.#text.slice(0, end);
        this.#text = this.#text.slice(end + 2);
        const [, event = '', data = ''] = /^event: (.*)\ndata: (.*)$/s.exec(block) ?? [];
        if (event !== '') return { event, data: JSON.parse(data) };
        this.comments += 1;
        continue;
      }
      const { done, value } = await this.#reader.read();
      if (done) return null;
      this.#text += Buffer.from(value).toString();
    }
  }

  /** Resolves when the server knows. */
  async leave(): Promise<void> {
    await until(() => clock.pauses > 0);
    const before = clock.pauses;
    this.#leave.abort();
    await until(() => clock.pauses < before);
  }
}

async function follow(query = '', key = on.admin.a.admin_api_key): Promise<Follower> {
  const leave = new AbortController();
  const headers = { 'x-gateway-api-key': key };
  const answer = await fetch(`${on.admin.url}/v1/logs/tail?${query}`, { headers, signal: leave.signal });
  return new Follower(answer, leave);
}

const row = (more: Partial<Record<string, LogRow[string]>> = {}) => {
  const { organisation_id, workspace_id } = on.admin.a;
  return logRow({ organisation_id, workspace_id, time: clock.now(), ...more });
};

/** Turns of real time until something is there, for what others do between two turns of the clock. */
async function until(there: () => boolean): Promise<void> {
  while (!there()) await new Promise((resolve) => setImmediate(resolve));
}

/** Lets a second pass, once so many followers wait for it. */
async function second(followers = 1): Promise<void> {
  await until(() => clock.pauses >= followers);
  await clock.advance(SECOND);
}

describe('following requests', () => {
  it('shows those that come from now on, in the order in which they end, whatever their times', async () => {
    store.rows.push(row());
    const stream = await follow();
    expect([stream.status, stream.headers.get('content-type')]).toEqual([200, 'text/event-stream; charset=utf-8']);
    const late = row({ time: clock.now() - 3_600_000, metadata: { team: 'red' } });
    store.rows.push(row(), late);
    await second();
    expect((await stream.next())?.data.id).toBe(store.rows[1]?.id);
    expect(await stream.next()).toMatchObject({
      event: 'log',
      data: {
        id: late.id,
        object: 'log',
        workspace: { id: on.admin.a.workspace_id, slug: on.admin.a.workspace_slug },
        metadata: { team: 'red' },
        cost_micros: 12_345,
      },
    });
    store.rows.push(row());
    await second();
    expect((await stream.next())?.data.id).toBe(store.rows[3]?.id);
    await stream.leave();
  });

  it('shows those of the filters, the workspace and the organisation only', async () => {
    const made = await on.admin.call('POST', '/v1/admin/workspaces', { body: { name: 'Other' } });
    const whole = await follow('status_code=500');
    const own = await follow('', on.admin.a.workspace_api_key);
    const wanted = row({ status: 500 });
    const { b } = on.admin;
    store.rows.push(
      row({ status: 500, organisation_id: b.organisation_id, workspace_id: b.workspace_id }),
      row({ status: 500, workspace_id: made.body.id }),
      wanted,
    );
    await second(2);
    expect([(await whole.next())?.data.workspace.id, (await whole.next())?.data.id]).toEqual([made.body.id, wanted.id]);
    expect((await own.next())?.data.id).toBe(wanted.id);
    await whole.leave();
    await own.leave();
  });

  it('sends 200 of a second, and says how many more there were', async () => {
    const stream = await follow();
    store.rows.push(...Array.from({ length: 203 }, () => row()));
    await second();
    for (let n = 0; n < 200; n++) expect((await stream.next())?.event).toBe('log');
    expect(await stream.next()).toEqual({ event: 'dropped', data: { requests: 3 } });
    await stream.leave();
  });

  it('goes on when the records could not be read for a moment', async () => {
    const stream = await follow();
    const { arrived } = store;
    store.arrived = async (): Promise<LogArrivals> => {
      store.arrived = arrived;
      throw new SluiceError('unavailable', 'The logs cannot be read right now.');
    };
    store.rows.push(row());
    await second();
    await until(() => store.arrived === arrived);
    await second();
    expect((await stream.next())?.data.id).toBe(store.rows[0]?.id);
    await stream.leave();
  });

  it('gives a sign of life after 15 seconds without a request', async () => {
    const stream = await follow();
    for (let n = 0; n < 16; n++) await second();
    store.rows.push(row());
    await second();
    await stream.next();
    expect(stream.comments).toBe(1);
    await stream.leave();
  });

  it('ends with the refusal when the key is revoked', async () => {
    const made = await on.makeKey('workspace/service', ['logs.view']);
    const stream = await follow('', made.key);
    expect((await on.admin.call('DELETE', `/v1/api-keys/${made.id}`)).status).toBe(200);
    await second();
    expect(await stream.next()).toMatchObject({ event: 'error', data: { error: { code: 'AB05' } } });
    expect(await stream.next()).toBeNull();
  });

  it('ends with the refusal when the role or its right is lost', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'manager' });
    const { key } = await on.makeKey('workspace/user', ['logs.view'], { user_id: id });
    const stream = await follow('', key);
    const body = { security_settings: { managersViewLogs: false } };
    expect((await on.admin.call('PUT', '/v1/admin/organisation/settings', { body })).status).toBe(200);
    store.rows.push(row());
    await second();
    expect(await stream.next()).toMatchObject({ event: 'error', data: { error: { code: 'AB03' } } });
    expect(await stream.next()).toBeNull();
    const open = { security_settings: { managersViewLogs: null } };
    expect((await on.admin.call('PUT', '/v1/admin/organisation/settings', { body: open })).status).toBe(200);
  });

  it('shows a restricted member no request of another, from the turn on in which the setting changes', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'member' });
    const { key } = await on.makeKey('workspace/user', ['logs.view'], { user_id: id });
    const stream = await follow('', key);
    store.rows.push(row());
    await second();
    expect((await stream.next())?.data.id).toBe(store.rows[0]?.id);
    const set = (value: boolean | null) =>
      on.admin.call('PUT', '/v1/admin/organisation/settings', {
        body: { security_settings: { membersViewAllData: value } },
      });
    await set(false);
    store.rows.push(row(), row({ user_id: id }));
    await second();
    expect((await stream.next())?.data.id).toBe(store.rows[2]?.id);
    await set(null);
    await stream.leave();
  });

  it('hides the metadata from those from whom a setting hides it, and refuses a filter by it', async () => {
    const id = await on.addUser('member', { [on.admin.a.workspace_id]: 'member' });
    const { key } = await on.makeKey('workspace/user', ['logs.view'], { user_id: id });
    const set = (value: boolean | null) =>
      on.admin.call('PUT', '/v1/admin/organisation/settings', {
        body: { security_settings: { membersViewLogMetadata: value } },
      });
    await set(false);
    const stream = await follow('', key);
    store.rows.push(row({ metadata: { _user: 'secret' } }));
    await second();
    expect((await stream.next())?.data.metadata).toBeNull();
    await stream.leave();
    const query = new URLSearchParams({ metadata: '{"_user":"secret"}' });
    refused(await on.admin.call('GET', `/v1/logs/tail?${query}`, { key }), 403, 'AB03', 'metadata');
    await set(null);
  });

  it('is served to 20 at once, and to the next when one has left', async () => {
    const streams = await Promise.all(Array.from({ length: 10 }, () => follow()));
    streams.push(...(await Promise.all(Array.from({ length: 5 }, () => follow('', on.admin.b.admin_api_key)))));
    const refusedNow = async () => {
      const headers = { 'x-gateway-api-key': on.admin.a.admin_api_key };
      const answer = await fetch(`${on.admin.url}/v1/logs/tail`, { headers });
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '5']);
      await answer.text();
    };
    await refusedNow();
    for (const stream of streams) await stream.leave();
    let again = await follow();
    while (again.status === 429) again = await follow();
    expect(again.status).toBe(200);
    await again.leave();
  });

  it('cuts off a client that takes nothing for a minute, and holds little for it', async () => {
    const { server } = on.admin.app;
    const connected = once(server, 'connection') as Promise<[Socket]>;
    const { port } = new URL(on.admin.url);
    const client = connect(Number(port), '127.0.0.1');
    client.pause();
    client.write(`GET /v1/logs/tail HTTP/1.1\r\nhost: a\r\nx-gateway-api-key: ${on.admin.a.admin_api_key}\r\n\r\n`);
    const [socket] = await connected;
    let held = 0;
    let seconds = 0;
    for (; !socket.destroyed && seconds < 300; seconds++) {
      // Two megabytes a second, until the buffers of the system are full.
      if (held === 0) store.rows.push(...Array.from({ length: 200 }, () => row({ error_message: 'x'.repeat(10_000) })));
      await until(() => clock.pauses > 0 || socket.destroyed);
      await clock.advance(SECOND);
      held = Math.max(held, socket.writableLength);
    }
    client.destroy();
    expect(socket.destroyed).toBe(true);
    expect(seconds).toBeGreaterThan(60);
    expect(held).toBeLessThan(8_000_000);
  }, 30_000);

  it('refuses a filter by feedback, which comes later than the request', async () => {
    const answer = await on.admin.call('GET', '/v1/logs/tail?weighted_feedback_min=1');
    refused(answer, 400, 'AB01', 'weighted_feedback_min');
  });

  it('ends when the server stops', async () => {
    const stream = await follow();
    stop.abort();
    expect(await stream.next()).toBeNull();
  });
});
