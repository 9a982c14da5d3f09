/** Texts that are made to look like something that nobody would read. */
import { describe, expect, it } from 'vitest';
import { OPERATIONS, type OperationId } from '../../../operations/operation.ts';
import { answerTexts, applyReplacements, FormBody, requestTexts, type SaidPart } from '../texts.ts';

const CARD = '4111111111111111';
const line = ({ path, text, unreadable }: SaidPart) => `${path}: ${unreadable ?? text}`;
const asked = (id: OperationId, body: unknown) => requestTexts(OPERATIONS[id], body, 'all').map(line);
const user = (content: unknown) => ({ messages: [{ role: 'user', content }] });
const calls = (input: object) => ({
  messages: [{ role: 'assistant', content: [{ type: 'tool_use', id: 'c', name: 'f', input }] }],
});
const base64 = (bytes: Buffer | string) => Buffer.from(bytes).toString('base64');

const FILE = 'content-disposition: form-data; name="file"; filename="a"';
const FIELD = 'content-disposition: form-data; name="prompt"';
const form = (headers: string, value: Buffer | string) =>
  new FormBody(
    Buffer.concat([Buffer.from(`--b\r\n${headers}\r\n\r\n`), Buffer.from(value), Buffer.from('\r\n--b--\r\n')]),
    'multipart/form-data; boundary=b',
  );

describe('a text that looks like a data URL', () => {
  it.each([
    ['by its head', `data:${CARD},is it valid?`],
    ['by a payload that is base64 as well', `data:;base64,${CARD}`],
    ['with a payload as long as a picture', `DATA:image/png;base64,${CARD.repeat(100)}`],
  ])('is read as it stands where a model gets it: %s', (_, text) => {
    expect(asked('chat', user(text))).toContain(`messages[0].content: ${text}`);
    expect(asked('chat', user([{ type: 'text', text }]))).toContain(`messages[0].content[0].text: ${text}`);
    expect(asked('messages', calls({ url: text }))).toContain(`messages[0].content[0].input.url: ${text}`);
    expect(
      asked('proxy', { contents: [{ parts: [{ functionCall: { name: 'f', args: { data: text } } }] }] }),
    ).toContain(`contents[0].parts[0].functionCall.args.data: ${text}`);
    const answer = { choices: [{ message: { role: 'assistant', content: text } }] };
    expect(answerTexts(OPERATIONS.chat, answer).map(line)).toContain(`choices[0].message.content: ${text}`);
  });

  it('is read as it stands and as it means, and what is replaced in either is gone', () => {
    const body = user(`data:text/plain,${CARD}%20and`);
    expect(asked('chat', body)).toEqual([
      `messages[0].content: data:text/plain,${CARD}%20and`,
      `messages[0].content#text: ${CARD} and`,
    ]);
    const next = applyReplacements(OPERATIONS.chat, body, [
      { path: 'messages[0].content', text: 'data:text/plain,[CARD]%20and' },
      { path: 'messages[0].content#text', text: '[CARD] and' },
    ]);
    expect(JSON.stringify(next)).not.toContain(CARD);
  });

  it('is what it means where a provider reads it', () => {
    const url = `data:image/png;base64,${base64('\u0089PNG')}`;
    expect(asked('chat', user([{ type: 'image_url', image_url: { url } }]))).not.toContain(
      `messages[0].content[0].image_url.url: ${url}`,
    );
  });
});

it.each(['signature', 'encrypted_content', 'thought_signature', 'data', 'result', 'bytes', 'image'])(
  "is read in a caller's own JSON whatever its member is called: %s",
  (name) => {
    for (const text of [CARD, CARD.repeat(100)])
      expect(asked('messages', calls({ [name]: text }))).toContain(`messages[0].content[0].input.${name}: ${text}`);
  },
);

describe('what cannot be read is said to be so', () => {
  it.each<[string, OperationId, unknown, string]>([
    ['token ids that pass through', 'proxy', { prompt: [1, 2] }, 'prompt: tokens'],
    ['lists of token ids that pass through', 'proxy', { input: [[1, 2]] }, 'input[0]: tokens'],
    ['token ids beside messages', 'chat', { ...user('a'), prompt_token_ids: [1, 2] }, 'prompt_token_ids: tokens'],
    ['a file of a message that passes through', 'proxy', { input: [{ file_id: 'f' }] }, 'input[0].file_id: file'],
    ['a file for a batch that passes through', 'proxy', { input_file_id: 'f' }, 'input_file_id: file'],
    [
      'a document by its address that passes through',
      'proxy',
      { contents: [{ parts: [{ fileData: { mimeType: 'application/pdf', fileUri: 'u' } }] }] },
      'contents[0].parts[0].fileData.fileUri: file',
    ],
    [
      'files of a container',
      'responses',
      { tools: [{ type: 'code_interpreter', container: { type: 'auto', file_ids: ['f'] } }] },
      'tools[0].container.file_ids: file',
    ],
    [
      'a document whose beginning is disguised',
      'messages',
      user([
        {
          type: 'document',
          source: {
            type: 'base64',
            media_type: 'application/pdf',
            data: base64(Buffer.from('\u00ff%PDF-1.7', 'latin1')),
          },
        },
      ]),
      'messages[0].content[0].source.data: file',
    ],
    [
      'a file without a type whose beginning is disguised',
      'chat',
      user([{ type: 'file', file: { file_data: base64(Buffer.from('\u00ff%PDF-1.7', 'latin1')) } }]),
      'messages[0].content[0].file.file_data: file',
    ],
    [
      'a field in another coding',
      'images_edit',
      form(`${FIELD}\r\ncontent-type: text/plain; charset=utf-16le`, Buffer.from(CARD, 'utf16le')),
      'prompt: file',
    ],
    ['a field that is no UTF-8', 'images_edit', form(FIELD, Buffer.from([0x61, 0xc1, 0xa6])), 'prompt: file'],
    ['the coding of all fields', 'images_edit', form(FIELD.replace('prompt', '_charset_'), 'utf-7'), '_charset_: file'],
    [
      'a text file with a byte of another coding',
      'proxy',
      form(FILE, Buffer.from(`${CARD}\u00e9`, 'latin1')),
      'file: file',
    ],
    ['a text file with a control character', 'proxy', form(FILE, `${CARD}\u0001`), 'file: file'],
  ])('%s', (_, id, body, what) => {
    expect(asked(id, body)).toContain(what);
  });

  it('but pictures and sound are not', () => {
    const png = Buffer.from('\u0089PNG\r\n\u001a\n\0\0\0\0', 'latin1');
    expect(asked('proxy', form(FILE, png))).toEqual(['file#filename: a']);
    const fileData = { mimeType: 'image/png', fileUri: 'u' };
    expect(asked('proxy', { parts: [{ fileData }] })).not.toContain('parts[0].fileData.fileUri: file');
  });
});

it('lines of JSON in a file are read without their escapes', () => {
  const texts = asked('proxy', form(FILE, '{"body":"\\u0034111111111111111"}\n{}'));
  expect(texts).toContain(`file#decoded: {"body":"${CARD}"}\n{}`);
});

it('a text file of UTF-16 is read in either order of its bytes', () => {
  for (const bytes of [Buffer.from(`\ufeff${CARD}`, 'utf16le'), Buffer.from(`\ufeff${CARD}`, 'utf16le').swap16()])
    expect(asked('proxy', form(FILE, bytes))).toContain(`file: ${CARD}`);
});
