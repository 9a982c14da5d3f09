/** What a request says of the program that sent it, for its record: nothing is decided by it. */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { addressBytes, isLoopback, isPublic, unmapped } from '../http/addresses.ts';
import { clientAddress } from '../http/client-address.ts';
import type { ClientFacts } from '../telemetry/record.ts';

/** Texts of callers are kept where they are names or versions. */
const TOKEN = /^[\w.:+-]{1,64}$/;
/** `OpenAI/Python 1.2.3`, `python-requests/2.32.3`, `node`: product, text behind its slash, and a version behind that. */
const AGENT = /^([A-Za-z][\w.+-]{0,63})(?:\/([\w.+-]{1,64}))?(?: v?(\d[\w.+-]{0,63}))?(?= |;|,|$)/;

/** What was read of the headers of a connection, which are the same for most of its requests. */
interface Known {
  readonly agent: string | undefined;
  readonly lang: string | undefined;
  readonly version: string | undefined;
  readonly runtime: string | undefined;
  readonly runtimeVersion: string | undefined;
  readonly address: string;
  readonly facts: ClientFacts | undefined;
}

const KNOWN = Symbol('client facts');
type Knowing = Socket & { [KNOWN]?: Known };

/** Undefined for a request that tells nothing, as one that Sluice makes itself. */
export function clientFacts(incoming: IncomingMessage): ClientFacts | undefined {
  const { headers } = incoming;
  const socket = incoming.socket as Knowing;
  const agent = headers['user-agent'];
  const lang = headers['x-stainless-lang'] as string | undefined;
  const version = headers['x-stainless-package-version'] as string | undefined;
  const runtime = headers['x-stainless-runtime'] as string | undefined;
  const runtimeVersion = headers['x-stainless-runtime-version'] as string | undefined;
  const address = clientAddress(incoming);
  const known = socket[KNOWN];
  if (
    known !== undefined &&
    known.agent === agent &&
    known.version === version &&
    known.runtimeVersion === runtimeVersion &&
    known.runtime === runtime &&
    known.lang === lang &&
    known.address === address
  )
    return known.facts;
  const read = {
    ...sdkOf(agent, lang, version),
    runtime: tokenOf(runtime),
    runtime_version: tokenOf(runtimeVersion),
    address: classOf(address),
  };
  const facts = Object.values(read).some((value) => value !== undefined) ? read : undefined;
  socket[KNOWN] = { agent, lang, version, runtime, runtimeVersion, address, facts };
  return facts;
}

/** Official clients say language and version of the package in extra headers, all others in `User-Agent`. */
function sdkOf(
  agent = '',
  lang: string | undefined,
  version: string | undefined,
): Pick<ClientFacts, 'sdk' | 'sdk_version'> {
  const [, product = '', slash = '', behind] = AGENT.exec(agent) ?? [];
  const name = product.toLowerCase().replace(/^async/, '');
  if (name === 'mozilla') return { sdk: 'browser', sdk_version: undefined };
  const language = tokenOf(lang)?.toLowerCase();
  if (language !== undefined) return { sdk: `${name || 'unknown'}-${language}`, sdk_version: tokenOf(version) };
  const number = [slash, behind ?? ''].find((text) => /^v?\d/.test(text));
  return { sdk: name || undefined, sdk_version: number };
}

function tokenOf(text: string | undefined): string | undefined {
  return text !== undefined && TOKEN.test(text) ? text : undefined;
}

function classOf(address: string): ClientFacts['address'] {
  const bytes = addressBytes(address.replace(/%.*/, ''));
  if (bytes === null) return undefined;
  if (isLoopback(bytes)) return 'loopback';
  return isPublic(unmapped(bytes)) ? 'public' : 'private';
}
