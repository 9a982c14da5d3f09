/** Text inside encoded strings: data URLs, base64 files, the comments of pictures. */
import { isUtf8 } from 'node:buffer';
import { pictureTexts, withPictureText } from './picture.ts';

/** One text that a string holds. Without a suffix it stands for the string itself. */
export interface Face {
  readonly suffix: string;
  readonly text: string;
  /** The string with another text in this one's place; `current` may have changed in other faces. */
  put(current: string, text: string): string;
}

export interface Faces {
  readonly faces: readonly Face[];
  readonly unreadable: 'file' | 'bounds' | null;
}

export const plain = (text: string): Face => ({ suffix: '', text, put: (_current, next) => next });

const BACKSLASH = 92;
const U = 117;
/** What a letter behind a backslash stands for. */
const LETTERS: ReadonlyMap<number, number> = new Map(
  Object.entries({ '"': '"', '\\': '\\', '/': '/', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t' }).map(
    ([letter, meant]) => [letter.charCodeAt(0), meant.charCodeAt(0)] as const,
  ),
);

/** A text with the escapes of JSON undone, wherever they stand. `cut`: the beginning of one at its end, which is left out. */
export function unescapedJson(text: string): { readonly text: string; readonly cut: string } {
  if (!text.includes('\\')) return { text, cut: '' };
  const { length } = text;
  const out = new Uint16Array(length);
  let size = 0;
  for (let i = 0; i < length; i++) {
    let code = text.charCodeAt(i);
    if (code === BACKSLASH) {
      const letter = i + 1 < length ? text.charCodeAt(i + 1) : -1;
      const meant = LETTERS.get(letter);
      if (meant !== undefined) {
        code = meant;
        i += 1;
      } else if (letter === -1 || letter === U) {
        const digits = text.slice(i + 2, i + 6);
        if (/^[0-9a-fA-F]{4}$/.test(digits)) {
          code = Number.parseInt(digits, 16);
          i += 5;
        } else if (i + 2 + digits.length >= length && /^[0-9a-fA-F]*$/.test(digits)) {
          return { text: decoded(out, size), cut: text.slice(i) };
        }
      }
    }
    out[size++] = code;
  }
  return { text: decoded(out, size), cut: '' };
}

const decoded = (codes: Uint16Array, size: number): string =>
  Buffer.from(codes.buffer, codes.byteOffset, size * 2).toString('utf16le');

/** Members whose texts are base64 where they are long. */
const BASE64 = new Set(
  'data file_data fileData b64_json partial_image_b64 result encrypted_content signature thought_signature thoughtSignature bytes image audio embedding'.split(
    ' ',
  ),
);
/** Of these, what is base64 at any length and tells nobody anything. */
const SEALED = new Set('encrypted_content signature thought_signature thoughtSignature'.split(' '));

/** A text that is valid base64 up to this length may as well be a word, a token or a key: it is looked at as it stands too. */
const SHORT = 1_400;
const SEALED_FROM = 16;

/** Whether a text is what only a provider can read: the signature of a thought, or the thought sealed. */
export const isSealed = (value: string, key: string | number): boolean =>
  typeof key === 'string' && SEALED.has(key) && value.length >= SEALED_FROM && /^[\w+/-]+={0,2}$/.test(value);

/** Members whose data URLs a provider reads, rather than a model as they stand. */
const URLS = /(?:^|_)(?:url|uri|image|picture|photo|audio|video|mask|file|data|source|result)s?$/i;

/** Told apart at once, for there are many ordinary texts. */
export const mayBeEncoded = (value: string, key: string | number): boolean =>
  isDataUrl(value) || (typeof key === 'string' && BASE64.has(key));

/** Where a text stands. */
export interface Standing {
  /** Of the nearest member. */
  readonly name: string;
  /** A model is given the text as it stands, whatever it looks like. */
  readonly spoken: boolean;
  /** It is said to be a document, of this type where one is given. */
  readonly document: boolean;
  readonly type: string;
}

/** Null: an ordinary text. */
export function encodedFaces(value: string, key: string | number, standing: Standing): Faces | null {
  if (isDataUrl(value)) {
    const inner = dataUrl(value);
    return inner === null || (!standing.spoken && URLS.test(standing.name)) ? inner : withItself(value, inner);
  }
  if (typeof key !== 'string' || !BASE64.has(key)) return null;
  const bytes = fromBase64(value);
  if (bytes === null) return null;
  const inner = bytesFaces(bytes, standing.document, standing.type);
  if (value.length > SHORT && !standing.spoken) return inner;
  return inner.faces.length > 0 || inner.unreadable !== null ? withItself(value, inner) : null;
}

const withItself = (value: string, { faces, unreadable }: Faces): Faces => ({
  faces: [plain(value), ...faces.map((face) => (face.suffix === '' ? { ...face, suffix: '#text' } : face))],
  unreadable,
});

function isDataUrl(value: string): boolean {
  const first = value.charCodeAt(0);
  return (first === 100 || first === 68) && value.slice(0, 5).toLowerCase() === 'data:';
}

const PLAIN_HEAD = /^data:[\w.+-]{0,40}\/?[\w.+-]{0,80}(?:;charset=[\w-]{1,20})?(?:;base64)?$/i;

function dataUrl(value: string): Faces | null {
  const comma = value.slice(0, 2_048).indexOf(',');
  if (comma === -1) return null;
  const head = value.slice(0, comma);
  const payload = value.slice(comma + 1);
  const faces: Face[] = [];
  // The parameters (a file name) are text as well.
  if (!PLAIN_HEAD.test(head)) {
    faces.push({ suffix: '#head', text: head, put: (current, text) => text + current.slice(current.indexOf(',')) });
  }
  const type = /^data:([^;,]*)/i.exec(head)?.[1]?.trim().toLowerCase() ?? '';
  if (!/;\s*base64\s*$/i.test(head)) {
    const text = unescapedUrl(payload);
    faces.push({
      suffix: '',
      text,
      put: (current, next) => `${current.slice(0, current.indexOf(',') + 1)}${encodeURIComponent(next)}`,
    });
    return { faces, unreadable: null };
  }
  const bytes = fromBase64(payload.includes('%') ? unescapedUrl(payload) : payload);
  // Not what it says it is: then it is a text like any other.
  if (bytes === null) return null;
  const inner = bytesFaces(bytes, /^(?:application|text)\//.test(type), type);
  return { faces: [...faces, ...inner.faces], unreadable: inner.unreadable };
}

function unescapedUrl(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Null for what is no base64 throughout: decoders skip strange characters, behind which text could hide. */
function fromBase64(value: string): Buffer | null {
  const length = value.length;
  if (length < 4 || length % 4 === 1) return null;
  let end = length;
  while (end > 0 && end > length - 2 && value.charCodeAt(end - 1) === 61) end--;
  const bytes = Buffer.from(value, 'base64');
  return bytes.length === Math.floor((end * 3) / 4) ? bytes : spaced(value);
}

/** Base64 in lines. */
function spaced(value: string): Buffer | null {
  if (!/^[A-Za-z0-9+/_-]{16,200}\r?\n/.test(value)) return null;
  const packed = value.replace(/[\r\n]+/g, '');
  const bytes = Buffer.from(packed, 'base64');
  return packed.length % 4 !== 1 && bytes.length === Math.floor((packed.replace(/={1,2}$/, '').length * 3) / 4)
    ? bytes
    : null;
}

/** Texts of a file's bytes. `document`: it is said to be one, so that what cannot be read is not to be passed over. */
export function bytesFaces(bytes: Buffer, document: boolean, type: string): Faces {
  const picture = pictureTexts(bytes);
  if (picture !== null) {
    return {
      faces: picture.texts.map((text, i) => ({
        suffix: `#text[${i}]`,
        text,
        put: (current, next) => recoded(current, (old) => withPictureText(old, i, next)),
      })),
      unreadable: picture.more ? 'bounds' : null,
    };
  }
  const text = fileText(bytes, type.startsWith('text/'));
  if (text !== null) {
    const put = (current: string, next: string) => recoded(current, () => Buffer.from(next));
    return { faces: text === '' ? [] : [{ suffix: '', text, put }], unreadable: null };
  }
  return { faces: [], unreadable: document || isDocument(bytes) ? 'file' : null };
}

/** A file's text; null for a binary one. */
export function fileText(bytes: Buffer, declared: boolean): string | null {
  if (bytes[0] === 0xff && bytes[1] === 0xfe)
    return bytes[2] === 0 && bytes[3] === 0 ? null : bytes.toString('utf16le', 2);
  if (bytes[0] === 0xfe && bytes[1] === 0xff && bytes.length % 2 === 0)
    return Buffer.from(bytes.subarray(2)).swap16().toString('utf16le');
  if (isUtf8(bytes)) {
    const text = bytes.toString('utf8');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they tell binary data from text
    return declared || !/[\0-\x08\x0e-\x1a\x1c-\x1f]/.test(text) ? text : null;
  }
  return declared ? bytes.toString('latin1') : null;
}

const DOCUMENTS = ['%PDF', 'PK\u0003\u0004', '\u00d0\u00cf\u0011\u00e0', '\u001f\u008b', '{\\rtf'];

/** A document or archive: text that is not read here. */
function isDocument(bytes: Buffer): boolean {
  const head = bytes.toString('latin1', 0, 8);
  return DOCUMENTS.some((magic) => head.startsWith(magic));
}

const MEDIA = [
  '\u0089PNG',
  '\u00ff\u00d8\u00ff',
  'GIF8',
  'RIFF',
  'OggS',
  'fLaC',
  'ID3',
  'FORM',
  '\u001aE\u00df\u00a3',
  '\u00ff\u00fb',
  '\u00ff\u00f3',
  '\u00ff\u00f2',
  '\u00ff\u00f1',
];

/** Sound and pictures, which nobody here hears or sees. A text that begins like one has no zero so soon. */
export function isMedia(bytes: Buffer): boolean {
  const head = bytes.toString('latin1', 0, 64);
  return head.includes('\0') && (head.startsWith('ftyp', 4) || MEDIA.some((magic) => head.startsWith(magic)));
}

function recoded(current: string, change: (bytes: Buffer) => Buffer): string {
  const comma = isDataUrl(current) ? current.slice(0, 2_048).indexOf(',') : -1;
  const old = Buffer.from(current.slice(comma + 1), 'base64');
  return current.slice(0, comma + 1) + change(old).toString('base64');
}
