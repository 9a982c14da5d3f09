/**
 * Sentences with which `gateway.pii` and `gateway.secrets` are measured. Written for this purpose: people, numbers and keys
 * are made up (published test numbers where checksums must hold). Keys are put together from pieces, so that no scanner of
 * source code takes them for real ones.
 */
export type Labelled = readonly [kind: string, texts: readonly string[]];

// biome-ignore format: tables
export const PERSONAL: readonly Labelled[] = [
  ['EMAIL_ADDRESS', ['Write to anna@example.com.', 'a.b+c@sub.example.co.uk', '<max.müller@exämple.de>', 'mail: x_y@host.io, thanks', "o'neil@example.org", '"ann@example.com"', 'ANNA@EXAMPLE.COM', 'user@xn--bcher-kva.example', '{"to":"q@w.de"}', 'first.last@a-b.museum']],
  ['PHONE_NUMBER', ['Call +1 202-456-1111.', '(202) 456-1111', '202-456-1111', '+49 30 227 32152', '0049 30 22732152', '+44 20 7946 0958', 'Tel. 030 22732152', 'my phone number is 020 7219 3000', '+33 1 40 20 50 50', 'fax: 212.736.5000']],
  ['CREDIT_CARD', ['4111 1111 1111 1111', '4111111111111111', '5555-5555-5555-4444', '378282246310005', '3782 822463 10005', 'card 6011111111111117.', '3530111333300000', '2223003122003222', '4012888888881881', '30569309025904']],
  ['SSN', ['536-90-4399', 'SSN 536904399', 'ssn: 001 01 0001', 'my social security number is 212097694', '(536-90-4399)', '899-99-9999', '772-12-3456', '665-01-0001', 'SSN=667010001', 'id 450-35-2341,']],
  ['IBAN', ['DE89 3704 0044 0532 0130 00', 'DE89370400440532013000', 'GB82 WEST 1234 5698 7654 32', 'gb82west12345698765432', 'FR14 2004 1010 0505 0001 3M02 606', 'NL91ABNA0417164300.', 'CH93 0076 2011 6238 5295 7', 'NO9386011117947', 'IBAN: ES91 2100 0418 4502 0005 1332', 'IT60X0542811101000000123456']],
  ['IP_ADDRESS', ['192.168.0.1', 'from 8.8.8.8, denied', '255.255.255.255', '10.0.0.1:8080', '2001:db8::1', '[::1]', 'fe80::1ff:fe23:4567:890a', '::ffff:192.0.2.128', '2001:0db8:85a3:0000:0000:8a2e:0370:7334', '172.16.254.1/24']],
  ['MAC_ADDRESS', ['00:1A:2B:3C:4D:5E', '00-1a-2b-3c-4d-5e', 'mac=aa:bb:cc:dd:ee:ff']],
  ['UK_NINO', ['AB 12 34 56 C', 'AB123456C']],
  ['BR_CPF', ['529.982.247-25', 'CPF: 52998224725']],
  ['IN_AADHAAR', ['2341 2341 2346', 'Aadhaar no. 234123412346']],
  ['CRYPTO_WALLET', ['0x52908400098527886E0F7030069857D2E4169EE7', 'bc1qar0srrr7xfkvy5l643lydnw9re59gtzzwf5mdq', '1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2']],
  ['NAME', ['My name is Anna Schmidt.', 'Dear Mr. Jones,', 'Frau Müller ruft an', 'Name: Li Wei', 'je m’appelle Jean Dupont', 'Dr. van der Berg said Dr. Watson']],
  ['LOCATION_ADDRESS', ['221 Baker Street', '1600 Pennsylvania Avenue NW', 'Hauptstraße 12', 'Karl-Marx-Allee 3, wohne Lindenallee 7', '12 rue de la Paix', 'Calle Mayor 5', 'P.O. Box 1234']],
];

/** What looks like something of the list and is not. */
// biome-ignore format: tables
export const IMPERSONAL: readonly string[] = [
  'The price is 4111 euros and 1111 cents.', '4111 1111 1111 1112', 'order 1234567890123456', 'pi is 3.14159265358979', 'version 1.2.3.4.5', '999.999.999.999', '256.1.1.1', 'ISBN 978-3-16-148410-0', '2026-11-22 10:30:00', '000-12-3456', '666-12-3456', '900-12-3456', '123-00-4567', 'DE00 3704 0044 0532 0130 00', 'XX89370400440532013000', '@example', 'a@b', 'user@localhost', 'npm i @scope/name', 'foo@ bar.com', '12:30:45', 'std::vector', 'a::b::c', 'Dear Customer,', 'My name is on the list.', 'St. Pancras is a station.', '42 is the answer', 'AB123456Z', '529.982.247-26', '2341 2341 2345', 'uuid 123e4567-e89b-12d3-a456-426614174000', 'sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b', '#4a4a4a', 'call me maybe', '10 to 20 people', '1,234,567.89', '2001', 'at 10.30 on 12.11.', 'room 202-456', '0x1F', 'the year 1999-2000', '+1', '1234 5678', 'temperature -10.5', 'ratio 16:9', 'Main Street', 'chapter 12 Drive', 'GB29', '1111111111111111', '0000 0000 0000 0000',
];

const r = 'Zq8Kt3Lw9Xv2Bn7Mc5Rd1Jf6Hs4Gp0YaTeUiWoQzXcVbNmLkJhGfDsA4r9P2w7';
const hex = '9f3a7c51e8b204d6f19c3e7a5b8d2046c7e1f3a95b0d8e62f4a1c3b5d7e90812';
const upper = 'QZ7K3LW5XV2BN4MC6RTY';
const b64 = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

// biome-ignore format: tables
export const SECRETS: readonly Labelled[] = [
  ['PRIVATE_KEY', [`-----BEGIN ${'RSA '}PRIVATE KEY-----\nMIIEow`, `-----BEGIN ${''}PRIVATE KEY-----\nMIIE`, `-----BEGIN ${'OPENSSH '}PRIVATE KEY-----\\nb3Bl`, `-----BEGIN ${'PGP '}PRIVATE KEY BLOCK-----\n`]],
  ['AWS_ACCESS_KEY', [`AKIA${'QZ7K3LW5XV2BN4MC'}`, `id=ASIA${'QZ7K3LW5XV2BN4MC'};`]],
  ['AWS_SECRET_KEY', [`aws_secret_access_key = ${r.slice(0, 40)}`, `"SecretAccessKey": "${r.slice(5, 45)}"`]],
  ['GITHUB_TOKEN', [`ghp_${r.slice(0, 36)}`, `github_pat_${r.slice(0, 22)}_${r.slice(0, 59)}`, `token: gho_${r.slice(3, 39)}`]],
  ['GITLAB_TOKEN', [`glpat-${r.slice(0, 20)}`]],
  ['ANTHROPIC_KEY', [`sk-ant-api03-${r.slice(0, 60)}`]],
  ['OPENAI_KEY', [`sk-${r.slice(0, 48)}`, `sk-proj-${r.slice(0, 60)}`]],
  ['GOOGLE_API_KEY', [`AIza${r.slice(0, 35)}`]],
  ['GOOGLE_OAUTH_SECRET', [`GOCSPX-${r.slice(0, 28)}`, `ya29.${r.slice(0, 40)}`]],
  ['AZURE_KEY', [`AccountKey=${r}${r.slice(0, 22)}==`]],
  ['AZURE_CLIENT_SECRET', [`abc8Q~${r.slice(0, 34)}`]],
  ['SLACK_TOKEN', [`xoxb-${'123456789012'}-${r.slice(0, 24)}`]],
  ['SLACK_WEBHOOK', [`https://hooks.slack.com/services/T${'0AB1CD2EF'}/B${'0GH3IJ4KL'}/${r.slice(0, 24)}`]],
  ['STRIPE_KEY', [`sk_live_${r.slice(0, 24)}`, `rk_test_${r.slice(0, 24)}`]],
  ['SENDGRID_KEY', [`SG.${r.slice(0, 22)}.${r.slice(0, 43)}`]],
  ['TWILIO_KEY', [`SK${hex.slice(0, 32)}`]],
  ['MAILGUN_KEY', [`key-${hex.slice(0, 32)}`]],
  ['NPM_TOKEN', [`npm_${r.slice(0, 36)}`]],
  ['PYPI_TOKEN', [`pypi-AgE${r.slice(0, 60)}`]],
  ['HUGGINGFACE_TOKEN', [`hf_${r.slice(0, 34)}`]],
  ['GROQ_KEY', [`gsk_${r.slice(0, 52)}`]],
  ['DATABRICKS_TOKEN', [`dapi${hex.slice(0, 32)}`]],
  ['DIGITALOCEAN_TOKEN', [`dop_v1_${hex}`]],
  ['SHOPIFY_TOKEN', [`shpat_${hex.slice(0, 32)}`]],
  ['LINEAR_KEY', [`lin_api_${r.slice(0, 40)}`]],
  ['VAULT_TOKEN', [`hvs.${r.slice(0, 30)}`]],
  ['TELEGRAM_TOKEN', [`123456789:AA${r.slice(0, 33)}`]],
  ['JWT', [`${b64({ alg: 'HS256', typ: 'JWT' })}.${b64({ sub: '1' })}.${r.slice(0, 43)}`]],
  ['CONNECTION_STRING', [`postgres://app:${r.slice(0, 12)}@db.example/x`, `https://me:${r.slice(0, 9)}@git.example`]],
  ['GENERIC_SECRET', [`api_key = "${r.slice(0, 32)}"`, `password: ${r.slice(4, 28)}`, `Authorization: Bearer ${r.slice(0, 30)}`]],
];

// biome-ignore format: tables
export const NO_SECRETS: readonly string[] = [
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a text that guardrails judge, not a template.
  `AKIA${'IOSFODNN'}`, 'AKIAAAAAAAAAAAAAAAAA', 'ghp_short', 'sk-learn is a library', 'sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '-----BEGIN PUBLIC KEY-----\nMIIB', '-----BEGIN CERTIFICATE-----', 'the PRIVATE KEY is safe', 'api_key = os.environ["API_KEY"]', 'password: changeme-please-now-thanks', 'token = your-token-goes-here-1234567890', 'secret: ${SECRET_FROM_VAULT_NAMED_X1}', 'https://user:password@example.com', 'postgres://localhost:5432/x', 'https://example.com:8080/@me', 'eyJhbGciOiJub25l', 'a.eyJ.b', 'uuid token 123e4567-e89b-12d3-a456-426614174000', `sha256 ${hex}`, 'AIza is a prefix', 'xoxb-token', 'hf_transformers', 'npm_config_registry', 'key-value', 'keyboard', 'bearer of good news, antidisestablishmentarianism', 'dapi docs', 'SG.1', 'the token com.example.application.module.v2', 'commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b', `xAKIA${upper.slice(0, 16)}`, 'password reset link', '',
];
