/** Texts of multipart bodies: fields, file names, and files that are texts or pictures with texts. */
import { isUtf8 } from 'node:buffer';
import { spliceParts } from '../../../kernel/json-scan.ts';
import { multipartParts } from '../../../kernel/multipart-scan.ts';
import { bytesFaces, type Face, isMedia, unescapedJson } from './encoded.ts';
import { isWord, memberPath, SETTINGS, USER } from './names.ts';
import { ReplacementError } from './replace.ts';
import type { SaidPart, Unreadable } from './walk.ts';

/** A multipart body, to be read by its fields. */
export class FormBody {
  readonly bytes: Buffer;
  readonly contentType: string;

  constructor(bytes: Buffer, contentType: string) {
    this.bytes = bytes;
    this.contentType = contentType;
  }
}

interface FormText {
  readonly part: SaidPart;
  /** Bytes of the body that hold it. */
  readonly start: number;
  readonly end: number;
  readonly change: (old: Buffer, text: string) => Buffer;
}

/** Fields by the names that a JSON body would have (`include[]` is `include`), files as null. */
export function formFields(form: FormBody): (readonly [name: string, value: string | null])[] {
  const out: (readonly [string, string | null])[] = [];
  for (const { name, filename, start, end } of multipartParts(form.bytes, form.contentType)) {
    const value = filename === null ? form.bytes.toString('utf8', start, end) : null;
    out.push([name.replace(/\[[^\]]*\]$/, ''), value]);
  }
  return out;
}

/** `documents`: whether files may be documents that somebody reads. */
function read(form: FormBody, documents: boolean): FormText[] {
  const out: FormText[] = [];
  const seen = new Map<string, number>();
  let position = 0;
  for (const field of multipartParts(form.bytes, form.contentType)) {
    const { name, filename, start, end } = field;
    const nth = seen.get(name) ?? 0;
    seen.set(name, nth + 1);
    const base = memberPath('', name, position++);
    const path = nth === 0 ? base : `${base}[${nth}]`;
    const role = USER.has(name) ? 'user' : null;
    const add = (suffix: string, text: string, change: FormText['change']) => {
      if (text !== '') out.push({ part: { path: path + suffix, role, text }, start, end, change });
    };
    const bytes = form.bytes.subarray(start, end);
    const type = (field.contentType ?? '').trim().toLowerCase();
    const unread = (why: Unreadable) =>
      void out.push({ part: { path, role, text: '', unreadable: why }, start, end, change: (old) => old });
    if (filename === null) {
      const text = bytes.toString('utf8');
      if (!isUtf8(bytes) || !inUtf8(type) || (name === '_charset_' && !inUtf8(`;charset=${text}`))) unread('file');
      else if (!SETTINGS.has(name) || !isWord(text, name)) {
        add('', text, (_old, next) => Buffer.from(next));
        if (/^\s*["[{]/.test(text)) decoded(text, add);
      }
      continue;
    }
    if (filename !== '') {
      const { headersStart } = field;
      out.push({
        part: { path: `${path}#filename`, role, text: filename },
        start: headersStart,
        end: start,
        change: (old, next) => renamed(old, next),
      });
    }
    const { faces, unreadable } = bytesFaces(bytes, false, type);
    for (const face of faces) {
      add(face.suffix, face.text, (old, next) => changed(face, old, next));
      if (face.suffix === '') decoded(face.text, add);
    }
    const silent = faces.length === 0 && bytes.length > 0 && !isMedia(bytes);
    if (unreadable === 'bounds' || (documents && (unreadable !== null || silent))) unread(unreadable ?? 'file');
  }
  return out;
}

/** Lines of JSON are read without their escapes by whoever runs them. */
function decoded(text: string, add: (suffix: string, text: string, change: FormText['change']) => void): void {
  if (text.includes('\\')) add('#decoded', unescapedJson(text).text, (_old, next) => Buffer.from(next));
}

/** Whether a media type leaves a text in the coding in which it is read here. */
function inUtf8(type: string): boolean {
  const charset = /;\s*charset\s*=\s*"?([^";\s]*)/i.exec(type)?.[1];
  return charset === undefined || /^(?:utf-?8|us-ascii)?$/i.test(charset);
}

/** Faces change base64 texts; a file of a form is the bytes themselves. */
const changed = (face: Face, old: Buffer, text: string): Buffer =>
  Buffer.from(face.put(old.toString('base64'), text), 'base64');

const FILENAME = /(;\s*filename\*?=)(?:"(?:[^"\\]|\\.)*"|[^\s";]+)/gi;

function renamed(headers: Buffer, name: string): Buffer {
  const escaped = Buffer.from(name)
    .toString('latin1')
    .replace(/["\r\n\\]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
  let first = true;
  return Buffer.from(
    headers.toString('latin1').replace(FILENAME, () => {
      const text = first ? `; filename="${escaped}"` : '';
      first = false;
      return text;
    }),
    'latin1',
  );
}

export const formTexts = (form: FormBody, documents: boolean): readonly SaidPart[] =>
  read(form, documents).map(({ part }) => part);

export function replacedForm(form: FormBody, texts: ReadonlyMap<string, string>): FormBody {
  const edits = new Map<number, { start: number; end: number; bytes: Buffer }>();
  let found = 0;
  for (const { part, start, end, change } of read(form, true)) {
    const text = part.unreadable === undefined ? texts.get(part.path) : undefined;
    if (text === undefined) continue;
    found += 1;
    if (text === part.text) continue;
    const bytes = edits.get(start)?.bytes ?? form.bytes.subarray(start, end);
    edits.set(start, { start, end, bytes: change(bytes, text) });
  }
  if (found < texts.size) {
    throw new ReplacementError('A check replaces a text that is not there.');
  }
  const ordered = [...edits.values()].sort((a, b) => a.start - b.start);
  return ordered.length === 0 ? form : new FormBody(Buffer.concat(spliceParts(form.bytes, ordered)), form.contentType);
}
