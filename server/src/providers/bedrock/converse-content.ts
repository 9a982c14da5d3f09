/** Parts of chat messages as content blocks of Converse. */
import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { asObject, asString, invalid, parseDataUri, quoted, refuse } from '../../operations/convert/fields.ts';

const IMAGES: Readonly<Record<string, string>> = {
  'image/png': 'png',
  'image/jpeg': 'jpeg',
  'image/gif': 'gif',
  'image/webp': 'webp',
};
const DOCUMENTS: Readonly<Record<string, string>> = {
  'application/pdf': 'pdf',
  'text/csv': 'csv',
  'application/msword': 'doc',
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document': 'docx',
  'application/vnd.ms-excel': 'xls',
  'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet': 'xlsx',
  'text/html': 'html',
  'text/plain': 'txt',
  'text/markdown': 'md',
};
const DOCUMENT_FORMATS: ReadonlySet<string> = new Set(Object.values(DOCUMENTS));
const VIDEOS: Readonly<Record<string, string>> = {
  'video/mp4': 'mp4',
  'video/quicktime': 'mov',
  'video/x-matroska': 'mkv',
  'video/webm': 'webm',
  'video/x-flv': 'flv',
  'video/mpeg': 'mpeg',
  'video/x-ms-wmv': 'wmv',
  'video/3gpp': 'three_gp',
};
const AUDIO_FORMATS: ReadonlySet<string> = new Set(['mp3', 'wav', 'flac', 'aac', 'opus', 'ogg', 'm4a', 'webm']);

const find = (table: Readonly<Record<string, string>>, key: string): string | undefined =>
  Object.hasOwn(table, key) ? table[key] : undefined;

/** An object in S3 that Bedrock reads itself; its format is the ending of its name. */
function fromS3(uri: string, formats: readonly string[], param: string): JsonObject {
  const ending = /\.([a-z0-9]{2,5})$/i.exec(uri)?.[1]?.toLowerCase() ?? '';
  const format = ending === 'jpg' ? 'jpeg' : ending;
  if (!formats.includes(format)) refuse(param, 'the name of an object in S3 must end with its format.');
  return { format, source: { s3Location: { uri } } };
}

function imageBlock(part: JsonObject, at: string): JsonObject {
  const url = asString(isObject(part.image_url) ? part.image_url.url : part.image_url);
  if (url === null || url === '') invalid(`${at}.image_url`, 'An image part needs "image_url.url".');
  const param = `${at}.image_url.url`;
  if (url.startsWith('s3://')) return { image: fromS3(url, Object.values(IMAGES), param) };
  const data = parseDataUri(url);
  if (data === null) refuse(param, 'images must be data URIs with base64 content, or s3:// URIs.');
  const format = find(IMAGES, data.mediaType);
  if (format === undefined) refuse(param, 'images must be PNG, JPEG, GIF or WebP there.');
  return { image: { format, source: { bytes: data.data } } };
}

function videoBlock(part: JsonObject, at: string): JsonObject {
  const url = asString(isObject(part.video_url) ? part.video_url.url : part.video_url);
  if (url === null || url === '') invalid(`${at}.video_url`, 'A video part needs "video_url.url".');
  const param = `${at}.video_url.url`;
  if (url.startsWith('s3://')) return { video: fromS3(url, Object.values(VIDEOS), param) };
  const data = parseDataUri(url);
  const format = data === null ? undefined : find(VIDEOS, data.mediaType);
  if (data === null || format === undefined) refuse(param, 'videos must be data URIs of a known type, or s3:// URIs.');
  return { video: { format, source: { bytes: data.data } } };
}

function audioBlock(part: JsonObject, at: string): JsonObject {
  const { data, format } = asObject(part.input_audio);
  if (typeof data !== 'string' || typeof format !== 'string') {
    invalid(`${at}.input_audio`, 'An audio part needs "data" and "format".');
  }
  if (!AUDIO_FORMATS.has(format)) refuse(`${at}.input_audio.format`, `${quoted(format)} is not known there.`);
  return { audio: { format, source: { bytes: data } } };
}

/** Names of documents in one request, which must differ. */
export type Names = Set<string>;

/** A name of letters, digits, single spaces, hyphens and brackets, as documents must have one there. */
function documentName(filename: string | null, names: Names): string {
  const plain = (filename ?? 'document')
    .replace(/\.[A-Za-z0-9]{1,5}$/, '')
    .replace(/[^A-Za-z0-9()[\]-]+/g, ' ')
    .trim()
    .slice(0, 190);
  const base = plain === '' ? 'document' : plain;
  let name = base;
  for (let n = 2; names.has(name); n++) name = `${base} ${n}`;
  names.add(name);
  return name;
}

function documentBlock(part: JsonObject, at: string, names: Names): JsonObject {
  const file = asObject(part.file);
  const raw = asString(file.file_data);
  if (raw === null) {
    refuse(`${at}.file.file_id`, 'a file stored with another provider cannot be read there; send "file_data".');
  }
  const filename = asString(file.filename);
  const ending = /\.([A-Za-z0-9]{1,5})$/.exec(filename ?? '')?.[1]?.toLowerCase();
  const data = parseDataUri(raw);
  let format = data === null ? (ending ?? 'pdf') : find(DOCUMENTS, data.mediaType);
  // Browsers and clients do not know every type; the name may.
  if (format === undefined && ending !== undefined && DOCUMENT_FORMATS.has(ending)) format = ending;
  if (format === undefined || !DOCUMENT_FORMATS.has(format)) {
    refuse(`${at}.file.file_data`, `files must be one of ${[...DOCUMENT_FORMATS].join(', ')} there.`);
  }
  return { document: { format, name: documentName(filename, names), source: { bytes: data?.data ?? raw } } };
}

/** `block`, and the mark after which the provider may cache, where the caller put one. */
export function withCachePoint(block: JsonObject, part: JsonObject): JsonObject[] {
  if (!isObject(part.cache_control)) return [block];
  const { ttl } = part.cache_control;
  return [block, { cachePoint: { type: 'default', ...(typeof ttl === 'string' ? { ttl } : null) } }];
}

/** Blocks of a message. Texts without any letter are left out: they are refused there. */
export function contentBlocks(
  content: JsonValue | undefined,
  at: string,
  options: { readonly media: boolean; readonly names: Names },
): JsonObject[] {
  if (content === null || content === undefined) return [];
  if (typeof content === 'string') return content.trim() === '' ? [] : [{ text: content }];
  if (!Array.isArray(content)) invalid(at, 'The content must be a text or a list of parts.');
  return content.flatMap((part, i) => {
    const place = `${at}[${i}]`;
    if (!isObject(part)) invalid(place, 'A content part must be an object.');
    if (part.type === 'text' || (part.type === 'refusal' && !options.media)) {
      const text = asString(part.type === 'text' ? part.text : part.refusal);
      if (text === null) invalid(`${place}.text`, 'A text part needs "text".');
      return text.trim() === '' ? [] : withCachePoint({ text }, part);
    }
    if (options.media) {
      if (part.type === 'image_url') return withCachePoint(imageBlock(part, place), part);
      if (part.type === 'file') return withCachePoint(documentBlock(part, place, options.names), part);
      if (part.type === 'video_url') return withCachePoint(videoBlock(part, place), part);
      if (part.type === 'input_audio') return withCachePoint(audioBlock(part, place), part);
    }
    return refuse(`${place}.type`, `parts of type ${quoted(part.type)} have no equivalent there.`);
  });
}
