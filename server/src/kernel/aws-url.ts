/** Everything but unreserved characters percent-encoded (RFC 3986), as Signature V4 wants it. */
export function encodeStrictly(text: string): string {
  return encodeURIComponent(text).replace(
    /[!'()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
}

/** `base` + path + query in the encoding that is signed; names without a value are written `name=`. */
export function awsUrl(base: string, path: string, query: Readonly<Record<string, string | null>> = {}): URL {
  const pairs = Object.entries(query)
    .filter(([, value]) => value !== null)
    .map(([name, value]) => `${encodeStrictly(name)}=${encodeStrictly(value ?? '')}`);
  return new URL(`${base}${path}${pairs.length === 0 ? '' : `?${pairs.join('&')}`}`);
}
