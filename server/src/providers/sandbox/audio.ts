import type { JsonObject } from '../../kernel/json.ts';
import { countTokens } from '../../operations/tokens.ts';
import { type Answer, bytesAnswer, type Event, jsonAnswer, streamAnswer, wholeAnswer } from './answer.ts';
import type { Input } from './chat.ts';
import { Fields } from './fields.ts';
import type { FormFile } from './form.ts';
import { parseModelName } from './model.ts';
import { invalid, missing } from './problem.ts';
import { textOf, UNBOUND } from './text.ts';

const RATE = 24_000;
/** A tenth of a second. */
const SAMPLES = 2_400;

/** Silence of 16-bit mono samples at 24 kHz, which is what OpenAI's `pcm` is. */
const pcm = (): Buffer => Buffer.alloc(SAMPLES * 2);

function wav(): Buffer {
  const data = pcm();
  const header = Buffer.alloc(44);
  header.write('RIFF', 0, 'latin1');
  header.writeUInt32LE(36 + data.length, 4);
  header.write('WAVEfmt ', 8, 'latin1');
  header.writeUInt32LE(16, 16);
  header.writeUInt16LE(1, 20);
  header.writeUInt16LE(1, 22);
  header.writeUInt32LE(RATE, 24);
  header.writeUInt32LE(RATE * 2, 28);
  header.writeUInt16LE(2, 32);
  header.writeUInt16LE(16, 34);
  header.write('data', 36, 'latin1');
  header.writeUInt32LE(data.length, 40);
  return Buffer.concat([header, data]);
}

/** Four frames of MPEG-1 layer III, mono, 44.1 kHz, 32 kbit/s: side information of zeros decodes to silence. */
function mp3(): Buffer {
  const frame = Buffer.alloc(104);
  frame.set([0xff, 0xfb, 0x10, 0xc4]);
  return Buffer.concat([frame, frame, frame, frame]);
}

/** `POST /audio/speech`: silence as MP3, WAV or PCM; other formats are answered as WAV, which `content-type` says. */
export async function speech(input: Input): Promise<Answer> {
  const fields = new Fields(input.body);
  const model = parseModelName(fields.needText('model'));
  const text = fields.needText('input');
  if (text.length > 4096) {
    throw invalid(
      "Invalid 'input': string too long. Expected a string with maximum length 4096.",
      'input',
      'string_above_max_length',
    );
  }
  if (!fields.has('voice')) throw missing('voice');
  fields.number('speed', 0.25, 4);
  const format = fields.oneOf('response_format', ['mp3', 'opus', 'aac', 'flac', 'wav', 'pcm']) ?? 'mp3';
  const [type, audio] =
    format === 'mp3' ? ['audio/mpeg', mp3()] : format === 'pcm' ? ['audio/pcm', pcm()] : ['audio/wav', wav()];
  if (fields.oneOf('stream_format', ['audio', 'sse']) === 'sse') {
    const tokens = await countTokens(text);
    const usage = { input_tokens: tokens, output_tokens: 1, total_tokens: tokens + 1 };
    const event = (body: JsonObject, final: boolean): Event => ({
      bytes: `data: ${JSON.stringify(body)}\n\n`,
      tokens: 1,
      final,
    });
    return streamAnswer(model, [
      event({ type: 'speech.audio.delta', audio: audio.toString('base64') }, false),
      event({ type: 'speech.audio.done', usage, system_fingerprint: 'sandbox' }, true),
    ]);
  }
  return wholeAnswer(model, 0, bytesAnswer(200, type, audio));
}

/** `POST /audio/transcriptions` and `/audio/translations`: a text that names the size of the file. */
export async function transcription(
  input: Input,
  task: 'transcribe' | 'translate',
  files: readonly FormFile[],
): Promise<Answer> {
  const fields = new Fields(input.body);
  const file = files.find((other) => other.name === 'file');
  if (file === undefined) throw missing('file');
  const model = parseModelName(fields.needText('model'));
  fields.number('temperature', 0, 1);
  const format =
    fields.oneOf('response_format', ['json', 'text', 'srt', 'verbose_json', 'vtt', 'diarized_json']) ?? 'json';
  const made = await textOf(`The sandbox received an audio file of ${file.bytes} bytes.`, UNBOUND);
  const text = made.whole ?? '';
  const usage: JsonObject = {
    type: 'tokens',
    input_tokens: 1,
    input_token_details: { text_tokens: 0, audio_tokens: 1 },
    output_tokens: made.tokens,
    total_tokens: made.tokens + 1,
  };
  if (fields.bool('stream') === true && task === 'transcribe') {
    const event = (body: JsonObject, tokens: number, final: boolean): Event => ({
      bytes: `data: ${JSON.stringify(body)}\n\n`,
      tokens,
      final,
    });
    const deltas = [...made.pieces(1)].map((piece) =>
      event({ type: 'transcript.text.delta', delta: piece.text }, piece.tokens, false),
    );
    return streamAnswer(model, [
      ...deltas,
      event({ type: 'transcript.text.done', text, usage, system_fingerprint: 'sandbox' }, 0, true),
    ]);
  }
  const plain = (body: string): Answer =>
    wholeAnswer(model, 0, bytesAnswer(200, 'text/plain; charset=utf-8', Buffer.from(body)));
  switch (format) {
    case 'text':
      return plain(`${text}\n`);
    case 'srt':
      return plain(`1\n00:00:00,000 --> 00:00:01,000\n${text}\n\n`);
    case 'vtt':
      return plain(`WEBVTT\n\n00:00:00.000 --> 00:00:01.000\n${text}\n\n`);
    case 'verbose_json': {
      const segment = {
        id: 0,
        seek: 0,
        start: 0,
        end: 1,
        text,
        tokens: [],
        temperature: 0,
        avg_logprob: -0.1,
        compression_ratio: 1,
        no_speech_prob: 0,
      };
      const body = {
        task,
        language: 'english',
        duration: 1,
        text,
        segments: [segment],
        usage: { type: 'duration', seconds: 1 },
        system_fingerprint: 'sandbox',
      };
      return wholeAnswer(model, 0, jsonAnswer(200, body));
    }
    default:
      return wholeAnswer(model, 0, jsonAnswer(200, { text, usage, system_fingerprint: 'sandbox' }));
  }
}
