import { z } from 'zod';
import { entropy } from '../checksums.ts';
import { type Detector, detected, matcher, REACH } from '../detect.ts';
import { ANY_TARGET, BOTH, check, ifAsked, MAX_CHOICES } from './support.ts';

/** A key that begins with one of `marks`, whose random part has at least `bits` per character. */
function keyed(kind: string, marks: readonly string[], pattern: RegExp, bits = 3): Detector {
  return matcher(
    kind,
    ({ tokens }) => marks.some((mark) => tokens.includes(mark)),
    pattern,
    ([match]) => entropy(match.slice(-64).replace(/^[A-Za-z]{1,8}[-_]/, '')) >= bits,
  );
}

/** A detector whose finding is the beginning of a longer thing; `rest` is sticky and matches what follows. */
function begun(detector: Detector, rest: RegExp): Detector {
  return {
    ...detector,
    extend(text, { end }) {
      rest.lastIndex = end;
      return end + (rest.exec(text)?.[0].length ?? 0);
    },
  };
}

/** Words that stand where a secret would: examples, variables, masks. */
const PLACEHOLDER =
  /example|placeholder|your|change ?me|dummy|xxxx|\*\*\*|\.\.\.|1234567|abcdef|secret|password|redacted|<|\$\{|\{\{|process\.env|os\.environ/i;

/** In the order that decides where two overlap: what names its issuer first, guesses last. */
export const SECRET_DETECTORS: readonly Detector[] = [
  begun(
    matcher(
      'PRIVATE_KEY',
      ({ rule }, text) => rule && text.includes('PRIVATE KEY'),
      /-----BEGIN (?:[A-Z]{2,10} ){0,3}PRIVATE KEY(?: BLOCK)?-----(?=\s|\\n|[A-Za-z0-9+/])/g,
    ),
    /[^-]{0,20000}(?:-----END [A-Z ]{0,40}-----)?/y,
  ),
  keyed(
    'AWS_ACCESS_KEY',
    ['AKIA', 'ASIA', 'ABIA', 'ACCA'],
    /(?<![A-Za-z0-9+/_-])(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9+/_-])/g,
    2.5,
  ),
  matcher(
    'AWS_SECRET_KEY',
    ({ longest }, text) => longest >= 40 && /aws|secret/i.test(text),
    /(?<=(?:aws|AWS|secret|SECRET|Secret)[\w .-]{0,24}(?:key|KEY|Key)["']? {0,3}(?:=|:|=>|is) {0,3}["']?)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])/g,
    ([match]) => entropy(match) >= 4 && /[0-9]/.test(match) && /[a-z]/.test(match) && /[A-Z]/.test(match),
  ),
  keyed(
    'GITHUB_TOKEN',
    ['ghp_', 'gho_', 'ghu_', 'ghs_', 'ghr_', 'github_pat_'],
    /(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})(?![A-Za-z0-9_])/g,
  ),
  keyed(
    'GITLAB_TOKEN',
    ['glpat-', 'gldt-', 'glrt-'],
    /(?<![A-Za-z0-9_])gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20,64}(?![A-Za-z0-9_-])/g,
  ),
  keyed(
    'ANTHROPIC_KEY',
    ['sk-ant-'],
    /(?<![A-Za-z0-9_-])sk-ant-[a-z0-9]{2,10}-[A-Za-z0-9_-]{32,200}(?![A-Za-z0-9_-])/g,
  ),
  keyed(
    'OPENAI_KEY',
    ['sk-'],
    /(?<![A-Za-z0-9_-])sk-(?:(?:proj|svcacct|admin)-[A-Za-z0-9_-]{40,200}|[A-Za-z0-9]{32,64})(?![A-Za-z0-9_-])/g,
    3.5,
  ),
  keyed('GOOGLE_API_KEY', ['AIza'], /(?<![A-Za-z0-9_-])AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])/g),
  keyed(
    'GOOGLE_OAUTH_SECRET',
    ['GOCSPX-', 'ya29.'],
    /(?<![A-Za-z0-9_-])(?:GOCSPX-[A-Za-z0-9_-]{28}(?![A-Za-z0-9_-])|ya29\.[A-Za-z0-9_-]{30,300}(?![A-Za-z0-9_-]))/g,
  ),
  matcher(
    'AZURE_KEY',
    ({ tokens }) => tokens.includes('AccessKey=') || tokens.includes('AccountKey='),
    /(?<=(?:AccountKey|SharedAccessKey)=)[A-Za-z0-9+/]{43,86}==?(?![A-Za-z0-9+/=])/g,
    ([match]) => entropy(match) >= 3.5,
  ),
  matcher(
    'AZURE_CLIENT_SECRET',
    ({ tokens }) => tokens.includes('Q~'),
    /(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[78]Q~[A-Za-z0-9_~.-]{31,34}(?![A-Za-z0-9_~-])/g,
  ),
  keyed(
    'SLACK_TOKEN',
    ['xoxb-', 'xoxp-', 'xoxa-', 'xoxr-', 'xoxs-', 'xapp-'],
    /(?<![A-Za-z0-9_-])(?:xox[abprs]-(?:\d{6,14}-){1,3}[A-Za-z0-9]{16,64}|xapp-\d-[A-Z0-9]{8,14}-\d{10,14}-[a-f0-9]{64})(?![A-Za-z0-9_-])/g,
    2.5,
  ),
  matcher(
    'SLACK_WEBHOOK',
    ({ tokens }) => tokens.includes('hooks.slack.com'),
    /https:\/\/hooks\.slack\.com\/(?:services|workflows)\/T[A-Z0-9]{6,12}\/[AB][A-Z0-9]{6,12}\/[A-Za-z0-9]{20,32}(?![A-Za-z0-9])/g,
  ),
  keyed(
    'STRIPE_KEY',
    ['sk_live_', 'sk_test_', 'rk_live_', 'rk_test_', 'whsec_'],
    /(?<![A-Za-z0-9_])(?:[rs]k_(?:live|test)_[A-Za-z0-9]{16,120}|whsec_[A-Za-z0-9+/]{24,64}={0,2})(?![A-Za-z0-9_])/g,
  ),
  keyed('SENDGRID_KEY', ['SG.'], /(?<![A-Za-z0-9_.-])SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])/g),
  matcher(
    'TWILIO_KEY',
    ({ tokens }) => tokens.includes('SK'),
    /(?<![A-Za-z0-9_])SK[0-9a-f]{32}(?![A-Za-z0-9_])/g,
    ([match]) => entropy(match) >= 3,
  ),
  matcher(
    'MAILGUN_KEY',
    ({ tokens }) => tokens.includes('key-'),
    /(?<![A-Za-z0-9_-])key-[0-9a-f]{32}(?![A-Za-z0-9_-])/g,
    ([match]) => entropy(match) >= 3,
  ),
  keyed('NPM_TOKEN', ['npm_'], /(?<![A-Za-z0-9_])npm_[A-Za-z0-9]{36}(?![A-Za-z0-9_])/g),
  keyed('PYPI_TOKEN', ['pypi-'], /(?<![A-Za-z0-9_-])pypi-AgE[A-Za-z0-9_-]{50,200}(?![A-Za-z0-9_-])/g),
  keyed('HUGGINGFACE_TOKEN', ['hf_'], /(?<![A-Za-z0-9_])hf_[A-Za-z0-9]{34}(?![A-Za-z0-9_])/g),
  keyed('GROQ_KEY', ['gsk_'], /(?<![A-Za-z0-9_])gsk_[A-Za-z0-9]{52}(?![A-Za-z0-9_])/g),
  keyed('DATABRICKS_TOKEN', ['dapi'], /(?<![A-Za-z0-9_])dapi[0-9a-f]{32}(?![A-Za-z0-9_])/g),
  keyed(
    'DIGITALOCEAN_TOKEN',
    ['dop_v1_', 'doo_v1_', 'dor_v1_'],
    /(?<![A-Za-z0-9_])do[opr]_v1_[0-9a-f]{64}(?![A-Za-z0-9_])/g,
  ),
  keyed(
    'SHOPIFY_TOKEN',
    ['shpat_', 'shpca_', 'shppa_', 'shpss_'],
    /(?<![A-Za-z0-9_])shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?![A-Za-z0-9_])/g,
  ),
  keyed('LINEAR_KEY', ['lin_api_'], /(?<![A-Za-z0-9_])lin_api_[A-Za-z0-9]{40}(?![A-Za-z0-9_])/g),
  keyed('VAULT_TOKEN', ['hvs.', 'hvb.'], /(?<![A-Za-z0-9_.-])hv[sb]\.[A-Za-z0-9_-]{24,200}(?![A-Za-z0-9_-])/g),
  matcher(
    'TELEGRAM_TOKEN',
    ({ tokens }) => tokens.includes(':AA'),
    /(?<![A-Za-z0-9_:-])\d{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])/g,
    ([match]) => entropy(match) >= 3.5,
  ),
  begun(
    matcher(
      'JWT',
      ({ tokens }) => tokens.includes('.eyJ'),
      /(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,400}\.(?=eyJ[A-Za-z0-9_-])/g,
      ([match]) => isHeader(match.slice(0, -1)),
    ),
    /[A-Za-z0-9_-]{0,20000}(?:\.[A-Za-z0-9_-]{0,8000}){0,3}/y,
  ),
  begun(
    matcher(
      'CONNECTION_STRING',
      ({ at }, text) => at && text.includes('://'),
      /(?<![A-Za-z0-9+.-])(?:postgres(?:ql)?|mysql|mariadb|mongodb(?:\+srv)?|rediss?|amqps?|mssql|ftps?|https?):\/\/[^\s:/@"'<>]{0,64}:[^\s:/@"'<>]{3,128}@[A-Za-z0-9]/g,
      ([match]) => !PLACEHOLDER.test(match.slice(match.indexOf('://') + 3).replace(/^[^:]*:/, '')),
    ),
    /[^\s"'<>]{0,1000}/y,
  ),
  matcher(
    'GENERIC_SECRET',
    ({ longest, digits }, text) => longest >= 20 && digits > 0 && /key|token|secret|passw|bearer/i.test(text),
    /(?<=(?:api[_-]?key|apikey|access[_-]?token|auth[_-]?token|client[_-]?secret|secret[_-]?key|private[_-]?key|password|passwd|bearer|token|secret)["']?\s{0,3}(?:=|:|=>|\s)\s{0,3}["']?)[A-Za-z0-9+/_.~-]{20,128}={0,2}(?![A-Za-z0-9+/_.~=-])/gi,
    ([match]) =>
      entropy(match) >= 3.6 &&
      /\d/.test(match) &&
      /[A-Za-z]/.test(match) &&
      !PLACEHOLDER.test(match) &&
      !/^[\w-]{1,40}(?:\.[\w-]{1,40}){1,6}$/.test(match) &&
      !/^[a-z]+(?:[-_/][a-z]+)+\d{0,4}$/i.test(match) &&
      !/^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/i.test(match),
  ),
];

/** Whether the first part of what looks like a JWT is a header that names an algorithm. */
function isHeader(part: string): boolean {
  const decoded = Buffer.from(part, 'base64url').toString('latin1');
  return decoded.startsWith('{"') && decoded.includes('"alg"');
}

const SECRET_KINDS = SECRET_DETECTORS.map(({ kind }) => kind) as [string, ...string[]];

/**
 * `gateway.secrets`: keys and tokens in all texts, by the form their issuers give them, and with entropy where the form alone
 * says little. A JWT is found by its header, a PEM key by its first line; `redact` replaces all of it.
 */
export const secrets = check({
  id: 'gateway.secrets',
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({
    categories: z.array(z.enum(SECRET_KINDS)).min(1).max(MAX_CHOICES).optional(),
    redact: z.boolean().default(false),
  }),
  timeoutMs: null,
  mutates: false,
  canonical: true,
  redacts: ifAsked,
  compile({ categories, redact }) {
    const detectors =
      categories === undefined ? SECRET_DETECTORS : SECRET_DETECTORS.filter(({ kind }) => categories.includes(kind));
    return {
      // A redacted part must not have been sent.
      lookBehind: redact ? null : REACH,
      judge: (subject) => detected(detectors, subject, redact, 'secret'),
    };
  },
});
