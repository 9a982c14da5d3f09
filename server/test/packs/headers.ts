/** Header names in spellings (pack "headers"). */

/** Spellings of one name that a careless comparison takes for another name. */
export function spellings(name: string): string[] {
  const mixed = [...name].map((char, k) => (k % 2 === 0 ? char.toUpperCase() : char)).join('');
  return [name, name.toUpperCase(), mixed, ` ${name}`, `${name} `, `\t${name}\t`];
}

/** Names that are no valid header names; each is refused wherever names are listed. */
export function lookAlikes(name: string): string[] {
  return [
    name.replace(/[aeo]/, (char) => ({ a: '\u0430', e: '\u0435', o: '\u043e' })[char] ?? char),
    [...name]
      .map((char) => (/[a-z]/.test(char) ? String.fromCodePoint(char.charCodeAt(0) - 97 + 0xff41) : char))
      .join(''),
    `${name}\u200b`,
    `${name}\u00ad`,
    name.replace('-', '\u2010'),
    name.replaceAll('-', '_'),
    `${name}:`,
    `${name}\r\nx-a: b`,
    `${name}\0`,
    `-${name}`,
    `${name}-`,
    'x-*',
    '',
    'a'.repeat(65),
  ].filter((spelling) => spelling !== name);
}
