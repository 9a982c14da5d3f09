/** Whether an answer tells of an error, by its bytes. */
/** Members of this name that are looked at one by one; bytes with more are taken to tell of an error. */
const MAX_LOOKED = 1_000;
const ERROR = Buffer.from('error"');
const [COLON, NULL, FALSE] = [0x3a, 0x6e, 0x66];
const isBlank = (byte: number | undefined) => byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;

/**
 * Whether the bytes of some JSON tell of an error: a member `error`, or one whose name ends so, that is neither null nor
 * false. Inside a text its quote would be escaped. True also where the bytes end within its name, or before its value.
 */
export function tellsError(bytes: Buffer): boolean {
  let looked = 0;
  for (let at = bytes.indexOf(ERROR); at !== -1; at = bytes.indexOf(ERROR, at + 1)) {
    looked += 1;
    if (looked > MAX_LOOKED) return true;
    let next = at + ERROR.length;
    while (isBlank(bytes[next])) next++;
    if (next === bytes.length) return true;
    if (bytes[next++] !== COLON) continue;
    while (isBlank(bytes[next])) next++;
    if (bytes[next] !== NULL && bytes[next] !== FALSE) return true;
  }
  return endsWithin(bytes);
}

/** Whether the bytes end within the name. */
function endsWithin(bytes: Buffer): boolean {
  for (let length = Math.min(ERROR.length - 1, bytes.length); length > 0; length--) {
    if (bytes.compare(ERROR, 0, length, bytes.length - length) === 0) return true;
  }
  return false;
}
