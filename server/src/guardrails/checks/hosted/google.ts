import { z } from 'zod';
import { isObject } from '../../../kernel/json.ts';
import { parseJson } from '../../../kernel/json-exact.ts';
import { CheckError, type CheckHttpClient } from '../../check.ts';
import { BOTH, ifAsked } from '../support.ts';
import { type Answer, consult } from './consult.ts';
import { type Ask, base, credentials, endpoint, hosted, isMask, label, redact, word } from './service.ts';
import { joined } from './texts.ts';

/** Never the `token_uri` of a key file: who writes a guardrail could have signed assertions posted anywhere. */
const TOKEN_URI = 'https://oauth2.googleapis.com/token';
const SCOPE = 'https://www.googleapis.com/auth/cloud-platform';
const HOUR_S = 3_600;
/** Tokens are not used in the last minutes of their life, nor in the second half of a short one. */
const EARLY_MS = 5 * 60_000;

const keyFile = z.looseObject({
  type: z.literal('service_account'),
  client_email: z.string().min(3).max(320),
  private_key: z.string().min(1).max(16_384),
  private_key_id: z.string().max(200).optional(),
});
type KeyFile = z.output<typeof keyFile>;

function fileOf(value: unknown): KeyFile | null {
  let file = value;
  if (typeof value === 'string') {
    try {
      file = parseJson(value);
    } catch {
      return null;
    }
  }
  return keyFile.safeParse(file).data ?? null;
}

const FILE = 'must be the key file of a service account: its JSON with type, client_email and private_key';
const serviceAccount = z.unknown().refine((value) => isMask(value) || fileOf(value) !== null, FILE);

async function assertion(file: KeyFile, now: number): Promise<string> {
  const { importPKCS8, SignJWT } = await import('jose');
  const issued = Math.floor(now / 1000);
  const key = await importPKCS8(file.private_key, 'RS256').catch(() => {
    // The reason would quote the key.
    throw new CheckError('The private_key of the service account is not an RSA key in PKCS #8 form.');
  });
  const id = file.private_key_id;
  return new SignJWT({ scope: SCOPE })
    .setProtectedHeader({ alg: 'RS256', typ: 'JWT', ...(id === undefined ? null : { kid: id }) })
    .setIssuer(file.client_email)
    .setAudience(TOKEN_URI)
    .setIssuedAt(issued)
    .setExpirationTime(issued + HOUR_S)
    .sign(key);
}

const token = z.looseObject({ access_token: z.string().min(1).max(8_192), expires_in: z.number().positive() });

/** Access tokens of one account: one exchange for all that come meanwhile, and a failed one is not kept. */
function tokens(account: unknown): (ask: Ask) => Promise<string> {
  let kept: { readonly value: string; readonly until: number } | null = null;
  let coming: Promise<string> | null = null;
  const exchange = async (outside: CheckHttpClient): Promise<string> => {
    const file = fileOf(account);
    if (file === null) throw new CheckError(`serviceAccount ${FILE}.`);
    const asked = outside.now();
    const { status, body } = await outside.call({
      url: TOKEN_URI,
      method: 'POST',
      headers: { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json' },
      body: new URLSearchParams({
        grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer',
        assertion: await assertion(file, asked),
      }).toString(),
      maxBytes: 65_536,
    });
    if (status !== 200) throw new CheckError(`Google refused the service account (${status}).`);
    let said: unknown;
    try {
      said = parseJson(body.toString('utf8'));
    } catch {
      throw new CheckError('Google did not answer with JSON when a token was asked for.');
    }
    const read = token.safeParse(said);
    if (!read.success) throw new CheckError('Google did not give an access token.');
    const life = read.data.expires_in * 1000;
    kept = { value: read.data.access_token, until: asked + Math.max(life - EARLY_MS, life / 2) };
    return kept.value;
  };
  return async ({ outside }) => {
    if (kept !== null && outside.now() < kept.until) return kept.value;
    coming ??= exchange(outside).finally(() => {
      coming = null;
    });
    return coming;
  };
}

const sanitized = z.looseObject({
  sanitizationResult: z.looseObject({
    filterMatchState: z.string(),
    invocationResult: z.string(),
    filterResults: z.record(z.string(), z.unknown()).default({}),
  }),
});

/** Whether something inside matched: results are nested differently for each filter. */
function matches(result: unknown): boolean {
  if (Array.isArray(result)) return result.some(matches);
  if (!isObject(result)) return false;
  return result.matchState === 'MATCH_FOUND' || Object.values(result).some(matches);
}

function maskedText(result: unknown): string | null {
  const sdp = isObject(result) ? result.sdpFilterResult : undefined;
  const deidentified = isObject(sdp) ? sdp.deidentifyResult : undefined;
  const data = isObject(deidentified) ? deidentified.data : undefined;
  const text = isObject(data) ? data.text : undefined;
  return typeof text === 'string' ? text : null;
}

/**
 * `google.modelArmor`: a template of Model Armor. What its Sensitive Data Protection de-identifies is a finding, replaced
 * with `redact`; every other match fails.
 */
export const modelArmor = hosted({
  id: 'google.modelArmor',
  service: 'Google Model Armor',
  phases: BOTH,
  parameters: z.strictObject({
    projectId: word('must be the id of a project', /^[a-z0-9][a-z0-9.:-]{0,99}$/),
    location: word('must be a location such as us-central1', /^[a-z]{2,}(?:-[a-z]+)?\d*$/),
    templateId: word('must be the id of a template', /^[A-Za-z0-9_-]{1,63}$/),
    redact,
  }),
  credentials: credentials({ serviceAccount, endpoint: endpoint.optional() }),
  redacts: ifAsked,
  compile({ projectId, location, templateId, redact: replace }, { serviceAccount: account, endpoint: at }) {
    const bearer = tokens(account);
    const root = base(at, `https://modelarmor.${location}.rep.googleapis.com`);
    const template = `${root}/v1/projects/${projectId}/locations/${location}/templates/${templateId}`;
    return (subject, ask) =>
      consult({
        ask,
        subject,
        redact: replace,
        limits: { piece: 8_000, call: 8_000, most: 1_000, overlap: replace ? 0 : 256 },
        async about(pieces): Promise<Answer> {
          const input = subject.phase === 'input';
          const text = joined(pieces);
          const said = await ask.post(
            `${template}:${input ? 'sanitizeUserPrompt' : 'sanitizeModelResponse'}`,
            { authorization: `Bearer ${await bearer(ask)}` },
            input ? { userPromptData: { text } } : { modelResponseData: { text } },
            sanitized,
          );
          const { filterMatchState, invocationResult, filterResults } = said.sanitizationResult;
          const hits = Object.entries(filterResults).filter(([, result]) => matches(result));
          const masked = hits.flatMap(([, result]) => maskedText(result) ?? []);
          const blocked = hits.flatMap(([name, result]) => (maskedText(result) === null ? [label(name)] : []));
          if (hits.length === 0 && filterMatchState === 'MATCH_FOUND') blocked.push('what its template names');
          if (blocked.length > 0) return { blocked, masked: [] };
          // A filter that was not carried out has found nothing because it looked at nothing.
          if (invocationResult !== 'SUCCESS') throw new CheckError(`${ask.service} did not carry out all filters.`);
          if (masked.length === 0) return { blocked: [], masked: [] };
          return { blocked: [], masked: ['sensitive data'], texts: pieces.length === 1 ? masked : null };
        },
      });
  },
});
