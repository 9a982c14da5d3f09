import { crc32, deflateSync } from 'node:zlib';
import type { JsonObject } from '../../kernel/json.ts';
import { countTokens } from '../../operations/tokens.ts';
import { type Answer, jsonAnswer, streamAnswer, wholeAnswer } from './answer.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import type { FormFile } from './form.ts';
import { parseModelName } from './model.ts';
import { missing } from './problem.ts';

const SIDE = 8;
/** What one image counts as in the usage of the answer. */
const IMAGE_TOKENS = 272;

function pngChunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const out = Buffer.alloc(body.length + 8);
  out.writeUInt32BE(data.length, 0);
  body.copy(out, 4);
  out.writeUInt32BE(crc32(body), body.length + 4);
  return out;
}

/** A square of eight by eight pixels in one colour. */
function pngOf(red: number, green: number, blue: number): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(SIDE, 0);
  header.writeUInt32BE(SIDE, 4);
  header.set([8, 2, 0, 0, 0], 8);
  const row = Buffer.concat([Buffer.from([0]), ...Array.from({ length: SIDE }, () => Buffer.from([red, green, blue]))]);
  const pixels = Buffer.concat(Array.from({ length: SIDE }, () => row));
  return Buffer.concat([
    Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    pngChunk('IHDR', header),
    pngChunk('IDAT', deflateSync(pixels)),
    pngChunk('IEND', Buffer.alloc(0)),
  ]);
}

export type ImageRoute = 'generations' | 'edits' | 'variations';

/** `POST /images/*`: tiny squares, one colour for each request and index. `url` answers are data URLs. */
export async function images(input: Input, route: ImageRoute, files: readonly FormFile[]): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.text('model') ?? 'image');
  const prompt = route === 'variations' ? '' : fields.needText('prompt');
  if (route !== 'generations' && !files.some((file) => file.name === 'image')) throw missing('image');
  const count = fields.integer('n', 1, 10) ?? 1;
  const size = fields.text('size') ?? '1024x1024';
  const base64 = fields.oneOf('response_format', ['url', 'b64_json']) === 'b64_json' || /^gpt-image/.test(model.name);
  const input_tokens = (await countTokens(prompt)) + IMAGE_TOKENS * files.length;
  const output_tokens = IMAGE_TOKENS * count;
  const usage: JsonObject = {
    input_tokens,
    input_tokens_details: {
      text_tokens: input_tokens - IMAGE_TOKENS * files.length,
      image_tokens: IMAGE_TOKENS * files.length,
    },
    output_tokens,
    total_tokens: input_tokens + output_tokens,
  };
  const colours = Buffer.from(input.hash, 'hex');
  const pictures = Array.from({ length: count }, (_, i) =>
    pngOf(colours[i] ?? 0, colours[i + 10] ?? 0, colours[i + 20] ?? 0).toString('base64'),
  );
  if (fields.bool('stream') === true && route !== 'variations') {
    const type = route === 'edits' ? 'image_edit.completed' : 'image_generation.completed';
    const events = pictures.map((b64_json, i) => {
      const body = {
        type,
        b64_json,
        created_at: input.created,
        size,
        quality: 'low',
        background: 'opaque',
        output_format: 'png',
        usage,
        system_fingerprint: 'sandbox',
      };
      return {
        bytes: `event: ${type}\ndata: ${JSON.stringify(body)}\n\n`,
        tokens: IMAGE_TOKENS,
        final: i === count - 1,
      };
    });
    return streamAnswer(model, events);
  }
  const body: JsonObject = {
    created: input.created,
    data: pictures.map((picture) => ({
      ...(base64 ? { b64_json: picture } : { url: `data:image/png;base64,${picture}` }),
      ...(prompt === '' ? null : { revised_prompt: prompt }),
    })),
    usage,
    system_fingerprint: 'sandbox',
  };
  return wholeAnswer(model, 0, jsonAnswer(200, body));
}
