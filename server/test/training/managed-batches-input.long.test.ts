/** The input of gateway-managed batches. */
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { linesOf } from '../../src/training/managed/lines.ts';
import { chatLine } from '../support/batch-store.ts';
import { ENGINES } from '../support/job-store.ts';
import { inputOf, useBatches, world } from '../support/managed-batches.ts';
import { refusal } from './support.ts';

describe.each(ENGINES)('gateway-managed batches on %s', (engine) => {
  useBatches(engine);

  describe('the input is checked before anything is sent', () => {
    it('faults are told with their lines, and nothing is run', async () => {
      const text = [
        chatLine('a'),
        chatLine('a'),
        '{"custom_id":"b","method":"GET","url":"/v1/chat/completions","body":{}}',
        '{"custom_id":"c","method":"POST","url":"/v1/embeddings","body":{}}',
        '{"custom_id":"d","method":"POST","url":"/v1/chat/completions","body":[]}',
        chatLine('e', 'x', { stream: true }),
        chatLine('f', 'x', { model: 'lorem' }),
        '{"custom_id":7}',
        'nonsense',
        '',
        '[]',
        chatLine('g').replace('{', '{"priority":1,'),
      ].join('\n');
      const made = await world.create({ input_file_id: await world.input(text) });
      const done = await world.drive(made.id);
      expect(done).toMatchObject({ status: 'failed', output_file_id: null, error_file_id: null });
      expect(done.errors?.data.map((fault) => [fault.line, fault.code, fault.param])).toEqual([
        [2, 'duplicate_custom_id', 'custom_id'],
        [3, 'invalid_method', 'method'],
        [4, 'invalid_url', 'url'],
        [5, 'invalid_body', 'body'],
        [6, 'invalid_body', 'body.stream'],
        [7, 'mismatched_model', 'body.model'],
        [8, 'invalid_custom_id', 'custom_id'],
        [9, 'invalid_json_line', null],
        [11, 'invalid_json_line', null],
        [12, 'unknown_field', 'priority'],
      ]);
      expect(world.lines).toEqual([]);
      expect(await refusal(() => world.output(made.id))).toMatchObject({
        status: 400,
        message: expect.stringMatching(
          /^The batch is "failed" and has no output\. The error of line 2: .+ \(GET .+ lists 9 more\)\. Mend what/,
        ),
      });
    });

    it('a line that would exhaust the process is a fault like any other', async () => {
      const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
      const lines = [deep, `{"a":${deep}}`, '{"a":1,"a":2}'].map((value, i) =>
        chatLine(`id-${i}`, 'x', { x: '?' }).replace('"?"', () => value),
      );
      const made = await world.create({ input_file_id: await world.input([chatLine('fine'), ...lines].join('\n')) });
      const done = await world.drive(made.id);
      expect(done.status).toBe('failed');
      expect(done.errors?.data.map((fault) => [fault.line, fault.code])).toEqual(
        [2, 3, 4].map((line) => [line, 'invalid_json_line']),
      );
      expect(world.lines).toEqual([]);
    });

    it('at most 100 faults are listed, with their total; an empty file is one', async () => {
      const many = await world.create({ input_file_id: await world.input('x\n'.repeat(250)) });
      const { errors } = await world.drive(many.id);
      expect(errors?.data.length).toBe(100);
      expect(errors).toMatchObject({ total: 250 });
      const empty = await world.create({ input_file_id: await world.input(' \r\n\n') });
      expect((await world.drive(empty.id)).errors?.data).toMatchObject([{ code: 'empty_file' }]);
    });

    it.each([
      ['a file of a provider', { input_file_id: 'file-abc' }, 400, 'input_file_id'],
      ['a file that is not there', { input_file_id: 'gw_file_none' }, 404, 'input_file_id'],
      ['no model', { model: undefined }, 400, 'model'],
      ['another window', { completion_window: '7d' }, 400, 'completion_window'],
      ['another endpoint', { endpoint: '/v1/images/generations' }, 400, 'endpoint'],
      ['an unknown provider', { gateway_options: { 'x-gateway-virtual-key': 'none' } }, 503, null],
      ['a model that is not enabled', { gateway_options: { 'x-gateway-virtual-key': 'few' } }, 400, null],
      [
        'an unknown config',
        { gateway_options: { 'x-gateway-config': 'pc-none' } },
        400,
        'gateway_options.x-gateway-config',
      ],
      [
        'a config in the request',
        { gateway_options: { 'x-gateway-config': '{"retry":{}}' } },
        400,
        'gateway_options.x-gateway-config',
      ],
      [
        'a secret among the options',
        { gateway_options: { 'x-gateway-virtual-key': 'sb', 'x-gateway-aws-secret-access-key': 'x' } },
        400,
        'gateway_options.x-gateway-aws-secret-access-key',
      ],
      [
        'a dry run of every line',
        { gateway_options: { 'x-gateway-virtual-key': 'sb', 'x-gateway-dry-run': 'true' } },
        400,
        'gateway_options.x-gateway-dry-run',
      ],
      ['no provider at all', { gateway_options: undefined }, 400, null],
      ['a job name for requests that Sluice runs', { job_name: 'mine' }, 400, 'job_name'],
    ])('%s is refused when the batch is created', async (_title, more, status, param) => {
      const body = { input_file_id: await world.input(inputOf(1)), ...more };
      expect(await refusal(() => world.create(body))).toMatchObject({ status, param });
    });

    it('a session without a key cannot create one', async () => {
      const body = { input_file_id: await world.input(inputOf(1)) };
      expect(await refusal(() => world.create(body, { keyId: null }))).toMatchObject({ status: 403 });
    });

    it('a dry run tells what is wrong and starts nothing', async () => {
      const body = { input_file_id: await world.input(`${chatLine('a')}\nx`) };
      const before = await world.store.tables.systemRead((tx) => tx.count('batches'));
      const answer = await world.create(body, { dryRun: true });
      expect(answer).toMatchObject({
        object: 'dry_run',
        run_by: 'gateway',
        validation: { valid: false, requests: 2, error_count: 1, errors: [{ line: 2, code: 'invalid_json_line' }] },
      });
      expect(await world.store.tables.systemRead((tx) => tx.count('batches'))).toBe(before);
    });
  });
});

describe('lines of a file', () => {
  it('end with LF or CRLF and nothing else, wherever the chunks are cut, and can be read on from any of them', async () => {
    const piece = fc.constantFrom('a', '\n', '\r', '\r\n', '\u2028', 'é', '');
    await fc.assert(
      fc.asyncProperty(fc.array(piece, { maxLength: 20 }), fc.integer({ min: 1, max: 5 }), async (pieces, size) => {
        const bytes = Buffer.from(pieces.join(''));
        const chunks = (from: number) => {
          const out: Buffer[] = [];
          for (let at = from; at < bytes.length; at += size) out.push(bytes.subarray(at, at + size));
          return Readable.from(out);
        };
        const collect = async (from?: { number: number; offset: number }) => {
          const out: { number: number; offset: number; end: number; text: string }[] = [];
          for await (const line of linesOf(chunks(from?.offset ?? 0), 1000, from)) {
            out.push({ number: line.number, offset: line.offset, end: line.end, text: line.bytes.toString('utf8') });
          }
          return out;
        };
        const all = await collect();
        const expected = bytes.toString('utf8').split('\n');
        if (expected.at(-1) === '') expected.pop();
        expect(all.map((line) => line.text)).toEqual(expected.map((line) => line.replace(/\r$/, '')));
        for (const [i, line] of all.entries()) {
          expect(await collect({ number: line.number, offset: line.offset })).toEqual(all.slice(i));
        }
      }),
      { numRuns: 100 },
    );
  });
});
