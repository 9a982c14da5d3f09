/** Signatures of tokens by the key set of a provider, also while the set has several keys of one name. */
import { errors, type JWTVerifyGetKey, type JWTVerifyOptions, type JWTVerifyResult, jwtVerify } from 'jose';

/** Keys of one name that are tried: a provider that replaces a key has two. Each costs a verification that strangers cause. */
const MOST_TRIED = 4;

/** As `jwtVerify`: throws what it throws. Of several keys that fit the header, each is tried, four at most. */
export async function verifySigned(
  token: string,
  keys: JWTVerifyGetKey,
  options: JWTVerifyOptions,
): Promise<JWTVerifyResult> {
  try {
    return await jwtVerify(token, keys, options);
  } catch (error) {
    if (!(error instanceof errors.JWKSMultipleMatchingKeys)) throw error;
    let tried = 0;
    for await (const key of error) {
      if (tried++ === MOST_TRIED) break;
      try {
        return await jwtVerify(token, key, options);
      } catch (failure) {
        if (!(failure instanceof errors.JWSSignatureVerificationFailed)) throw failure;
      }
    }
    throw new errors.JWSSignatureVerificationFailed();
  }
}
