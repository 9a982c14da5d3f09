/** Generated addresses for egress tests: what must be refused, and its lawful neighbours. */

import { NEVER_TRUSTED, REFUSED_IPV4 } from '../../src/http/addresses.ts';

function toNumber(address: string): number {
  return address.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);
}

function toAddress(value: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(value / 2 ** shift) % 256).join('.');
}

/** First, second, middle, and last address of each special IPv4 range. */
export function specialIpv4(): string[] {
  const out = new Set<string>();
  for (const range of [...REFUSED_IPV4, ...NEVER_TRUSTED.filter((text) => !text.includes(':'))]) {
    const [base = '', bits = '32'] = range.split('/');
    const first = toNumber(base);
    const size = 2 ** (32 - Number(bits));
    for (const offset of [0, 1, Math.floor(size / 2), size - 1]) out.add(toAddress(first + Math.min(offset, size - 1)));
  }
  for (const known of ['127.0.0.1', '169.254.169.254', '169.254.170.2', '10.0.0.1', '192.168.1.1', '172.16.0.1'])
    out.add(known);
  return [...out];
}

/** Addresses just outside a special range that are public: refusing them would be a false alarm. */
export function lawfulNeighbours(): string[] {
  const special = REFUSED_IPV4.map((range) => {
    const [base = '', bits = '32'] = range.split('/');
    const first = toNumber(base);
    return { first, last: first + 2 ** (32 - Number(bits)) - 1 };
  });
  return special
    .flatMap(({ first, last }) => [first - 1, last + 1])
    .filter((value) => value >= 0 && value < 2 ** 32)
    .filter((value) => !special.some(({ first, last }) => value >= first && value <= last))
    .map(toAddress);
}

const hex = (value: number, width = 0) => value.toString(16).padStart(width, '0');

/** The same IPv4 inside IPv6: mapped, compatible, translated, NAT64 (both prefixes), 6to4, Teredo, ISATAP-like. */
export function embeddings(address: string): string[] {
  const value = toNumber(address);
  const high = hex(Math.floor(value / 65_536));
  const low = hex(value % 65_536);
  const flipped = toNumber(
    address
      .split('.')
      .map((part) => String(255 - Number(part)))
      .join('.'),
  );
  return [
    `::ffff:${high}:${low}`,
    `::${high}:${low}`,
    `::ffff:0:${high}:${low}`,
    `64:ff9b::${high}:${low}`,
    `64:ff9b:1::${high}:${low}`,
    `2002:${high}:${low}::1`,
    `2001:0:4136:e378:8000:63bf:${hex(Math.floor(flipped / 65_536))}:${hex(flipped % 65_536)}`,
  ];
}

/** Special IPv6 addresses. */
export function specialIpv6(): string[] {
  return [
    '::',
    '::1',
    '::2',
    '100::1',
    '100:0:0:1::1',
    '2001::1',
    '2001:10::1',
    '2001:20::1',
    '2001:1ff:ffff::1',
    '2001:db8::1',
    '2001:db8:ffff:ffff:ffff:ffff:ffff:ffff',
    '2002::1',
    '2002:ffff::1',
    '3fff::1',
    '3fff:fff::1',
    '4000::1',
    '5f00::1',
    'fc00::1',
    'fd00::1',
    'fd00:ec2::254',
    'fe80::1',
    'febf::1',
    'fec0::1',
    'ff02::1',
    'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
    '1fff:ffff::1',
  ];
}

/** Spellings of one IPv4 address that URL parsers or resolvers accept, other than its canonical one. */
export function obfuscations(address: string): string[] {
  const value = toNumber(address);
  const parts = address.split('.').map(Number);
  const [a = 0, b = 0, c = 0, d = 0] = parts;
  const wide = [...address]
    .map((char) => (char === '.' ? '。' : String.fromCodePoint(char.charCodeAt(0) - 48 + 0xff10)))
    .join('');
  const circled = address.replace(/[1-9]/g, (digit) => String.fromCodePoint(0x2460 + Number(digit) - 1));
  return [
    String(value),
    `0x${hex(value, 8)}`,
    `0X${hex(value, 8).toUpperCase()}`,
    `0${value.toString(8)}`,
    parts.map((part) => `0x${hex(part)}`).join('.'),
    parts.map((part) => `0${part.toString(8)}`).join('.'),
    parts.map((part) => String(part).padStart(4, '0')).join('.'),
    `${a}.${b}.${c * 256 + d}`,
    `${a}.${(b * 256 + c) * 256 + d}`,
    `0x${hex(a)}.${b}.0${c.toString(8)}.${d}`,
    `${address}.`,
    `${a}.${b}.${c}.${d + 256}`,
    address.replace('.', '%2e'),
    [...address].map((char) => `%${hex(char.charCodeAt(0))}`).join(''),
    wide,
    circled,
    `[::ffff:${address}]`,
    `[::${address}]`,
    `[0:0:0:0:0:ffff:${hex(a * 256 + b)}:${hex(c * 256 + d)}]`,
  ];
}

/** Whole URLs built to confuse two readers about the host. */
export function trickUrls(host: string): string[] {
  return [
    `http://example.com@${host}/`,
    `http://example.com:80@${host}/`,
    `http://${host}#@example.com/`,
    `http://example.com#@${host}/`,
    `http://${host}\\@example.com/`,
    `http://example.com\\.${host}/`,
    `http:/\\${host}/`,
    `http:\\\\${host}/`,
    `http:///${host}/`,
    `http:${host}/`,
    `//${host}/`,
    `http://${host}\t/`,
    `ht\ntp://${host}/`,
    ` http://${host}/`,
    `http://${host}/ `,
    `http://${host}:80:80/`,
    `http://${host}:/`,
    `http://${host}:0/`,
    `http://${host}:65536/`,
    `http://${host}:080/`,
    `http://${host}:+80/`,
    `http://${host}:0x50/`,
    `http://${host}\u0000.example.com/`,
    `http://${host}%00.example.com/`,
    `http://${host}%2f@example.com/`,
    `http://${host}\u3002example.com/`,
    `http://${host}\u00ad/`,
    `gopher://${host}/`,
    `file:///etc/passwd`,
    `ftp://${host}/`,
    `ws://${host}/`,
    `data:text/plain,x`,
    `javascript:alert(1)`,
    `dict://${host}:11211/`,
    `http+unix://${host}/`,
  ];
}

/** Hosts of providers and ordinary sites, which must pass. */
export const LAWFUL_HOSTS = [
  'api.openai.com',
  'api.anthropic.com',
  'generativelanguage.googleapis.com',
  'us-central1-aiplatform.googleapis.com',
  'bedrock-runtime.us-east-1.amazonaws.com',
  'my-resource.openai.azure.com',
  'my-resource.services.ai.azure.com',
  'api.groq.com',
  'api.mistral.ai',
  'api.cohere.com',
  'api.deepseek.com',
  'api.together.xyz',
  'api.fireworks.ai',
  'openrouter.ai',
  'api.perplexity.ai',
  'api.x.ai',
  'api.cerebras.ai',
  'api.sambanova.ai',
  'integrate.api.nvidia.com',
  'api-inference.huggingface.co',
  'router.huggingface.co',
  'api.replicate.com',
  'api.deepinfra.com',
  'api.novita.ai',
  'api.hyperbolic.xyz',
  'api.moonshot.ai',
  'dashscope.aliyuncs.com',
  'open.bigmodel.cn',
  'api.minimax.chat',
  'api.stability.ai',
  'api.voyageai.com',
  'api.jina.ai',
  'api.ai21.com',
  'api.lambda.ai',
  'api.studio.nebius.com',
  'inference.baseten.co',
  'api.upstage.ai',
  'api.reka.ai',
  'api.predibase.com',
  'adb-1234567890123456.7.azuredatabricks.net',
  'account.snowflakecomputing.com',
  'gateway.ai.cloudflare.com',
  'api.siliconflow.cn',
  'ark.ap-southeast.bytepluses.com',
  'inference.generativeai.us-chicago-1.oci.oraclecloud.com',
  'api.recraft.ai',
  'api.segmind.com',
  'api.monsterapi.ai',
  'my_model.example.com',
  'a.b.c.d.e.f.g.h.example.com',
  // Names that only resemble refused ones.
  'notconsul.com',
  'mymetadata.goog.example.com',
  'local.example.com',
  'localhost.example.com',
  'nip.io.example.com',
  'latest.dev',
  'contest.org',
  '1password.com',
  '0x.org',
] as const;
