import { SluiceError } from './errors.ts';

/** An element of an XML answer: attributes are not kept, text is that of the element itself. */
export interface XmlElement {
  readonly name: string;
  readonly children: readonly XmlElement[];
  readonly text: string;
}

const MAX_DEPTH = 16;
const NAME = /^[A-Za-z_][A-Za-z0-9_.:-]*/;
const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };

function broken(why: string): SluiceError {
  return new SluiceError('upstream_invalid', 'The answer of the provider is not the XML it should be.', {
    detail: why,
  });
}

function decoded(text: string): string {
  if (!text.includes('&')) return text;
  return text.replace(/&([^;&]{0,10});?/g, (whole, name: string) => {
    const named = Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : undefined;
    if (named !== undefined && whole.endsWith(';')) return named;
    const code = /^#x([0-9a-fA-F]{1,6})$/.exec(name) ?? /^#([0-9]{1,7})$/.exec(name);
    const value = code === null ? Number.NaN : Number.parseInt(code[1] ?? '', name[1] === 'x' ? 16 : 10);
    if (!whole.endsWith(';') || !(value >= 0 && value <= 0x10ffff)) throw broken(`entity ${whole}`);
    return String.fromCodePoint(value);
  });
}

/**
 * Reads the XML that S3 and STS answer with: elements, text and the five entities. Document types are refused, so that
 * there is nothing to expand. Throws `upstream_invalid`.
 */
export function parseXml(source: string): XmlElement {
  type Open = { name: string; children: XmlElement[]; text: string };
  const stack: Open[] = [];
  let root: XmlElement | null = null;
  let at = 0;
  const skip = (end: string): void => {
    const to = source.indexOf(end, at);
    if (to < 0) throw broken(`no ${end}`);
    at = to + end.length;
  };
  const close = (open: Open): void => {
    const parent = stack.at(-1);
    if (parent !== undefined) parent.children.push(open);
    else if (root === null) root = open;
    else throw broken('a second root');
  };
  while (at < source.length) {
    const next = source.indexOf('<', at);
    const text = source.slice(at, next < 0 ? source.length : next);
    const open = stack.at(-1);
    if (open !== undefined) open.text += decoded(text);
    else if (text.replace(/^\uFEFF/, '').trim() !== '') throw broken('text outside the root');
    if (next < 0) break;
    at = next;
    if (source.startsWith('<?', at)) skip('?>');
    else if (source.startsWith('<!--', at)) skip('-->');
    else if (source.startsWith('<!', at)) throw broken('a declaration');
    else if (source[at + 1] === '/') {
      const from = at + 2;
      skip('>');
      const name = source.slice(from, at - 1).trim();
      const last = stack.pop();
      if (last === undefined || last.name !== name) throw broken(`</${name.slice(0, 50)}>`);
      close(last);
    } else {
      const name = NAME.exec(source.slice(at + 1, at + 129))?.[0];
      if (name === undefined) throw broken('a tag without a name');
      const from = at;
      skip('>');
      const empty = source[at - 2] === '/';
      const attributes = source.slice(from + 1 + name.length, at - (empty ? 2 : 1));
      if (!/^(?:\s+[A-Za-z_:][\w:.-]*\s*=\s*(?:"[^"<]*"|'[^'<]*'))*\s*$/.test(attributes)) throw broken('attributes');
      const made: Open = { name, children: [], text: '' };
      if (empty) close(made);
      else if (stack.push(made) > MAX_DEPTH) throw broken('too deep');
    }
  }
  if (stack.length > 0 || root === null) throw broken('it ends early');
  return root;
}

/** The first child of this name, or null. */
export function child(element: XmlElement, name: string): XmlElement | null {
  return element.children.find((one) => one.name === name) ?? null;
}

/** Text of the first child of this name; null when it is absent. */
export function textOfChild(element: XmlElement, name: string): string | null {
  return child(element, name)?.text ?? null;
}

/** Text as the content of an element. */
export function escapeXml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
