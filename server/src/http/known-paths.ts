import type { IncomingHttpHeaders } from 'node:http';
import { editDistance } from '../kernel/nearest.ts';
import { pathOnly } from '../kernel/path-only.ts';
import { looksLikeName } from '../kernel/quoted.ts';

interface Route {
  readonly method: string;
  readonly url: string;
  /** Parameters are null. */
  readonly parts: readonly (string | null)[];
}

/** Longer ones are nobody's slip, and comparing them would cost. */
const MAX_PATH = 200;
const MAX_PARTS = 8;
/** What each part that the caller left out costs, beside the wrong characters of the others. */
const LEFT_OUT = 3;
/** Parts that a caller leaves out: the last word of a long path alone is another path. */
const MOST_LEFT_OUT = 2;

/**
 * The routes that are served, for errors only: what a path that is none of them was meant to be. Registrars tell it
 * their routes; the router never asks it.
 */
export class KnownPaths {
  readonly #routes: Route[] = [];
  readonly #areas = new Set<string>();
  readonly #publicUrl: () => string;

  /** @param publicUrl address of this server as clients know it; the Host header is never asked */
  constructor(publicUrl: () => string) {
    this.#publicUrl = () => publicUrl().replace(/\/+$/, '');
  }

  /** `url` as the router takes it: `/v1/providers/:slug`. */
  know(method: string, url: string): void {
    const parts = url
      .slice(1)
      .split('/')
      .map((part) => (part.startsWith(':') ? null : part));
    if (parts.includes('*')) return;
    this.#routes.push({ method, url: url.replace(/:(\w+)/g, '{$1}'), parts });
    if (parts[0] === 'v1' && parts[1]) this.#areas.add(parts[1]);
  }

  /** Whether a route is served; `url` as the router takes it. */
  has(method: string, url: string): boolean {
    const shown = url.replace(/:(\w+)/g, '{$1}');
    return this.#routes.some((route) => route.method === method && route.url === shown);
  }

  /**
   * The methods that the path of a target is served with, HEAD beside each GET; none for a path that is no route's. A
   * route that names a part comes before one with a parameter there, as in the router.
   */
  methodsOf(target: string): readonly string[] {
    const asked = pathOnly(target).slice(1).split('/');
    const methods = new Set<string>();
    let nearest = '';
    for (const { method, parts } of this.#routes) {
      if (parts.length !== asked.length || !parts.every((part, index) => part === null || part === asked[index]))
        continue;
      const form = parts.map((part) => (part === null ? 1 : 0)).join('');
      if (methods.size > 0 && form > nearest) continue;
      if (form !== nearest) methods.clear();
      nearest = form;
      methods.add(method);
      if (method === 'GET') methods.add('HEAD');
    }
    return [...methods];
  }

  /** The route that a request was most likely meant for, as `GET /v1/providers/{slug}`; null when none is near. */
  meant(method: string, target: string): string | null {
    const path = pathOnly(target);
    if (path.length > MAX_PATH) return null;
    const asked = path.split('/').filter((part) => part !== '');
    if (asked.length < 2 || asked.length > MAX_PARTS) return null;
    let best: Route | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const route of this.#routes) {
      const cost = distance(asked, route.parts) * 2 + (route.method === (method === 'HEAD' ? 'GET' : method) ? 0 : 1);
      if (cost < least) [best, least] = [route, cost];
    }
    return best === null ? null : `${best.method} ${best.url}`;
  }

  /** What is wrong where a client adds its path to a base URL that is a whole address of a call; else null. */
  baseUrlFault(target: string): string | null {
    const path = pathOnly(target);
    if (path.length > MAX_PATH) return null;
    const serves = (url: string) => this.#routes.some((route) => route.url === url);
    for (const { url } of this.#routes) {
      if (!url.startsWith('/v1/') || !path.startsWith(`${url}/`)) continue;
      const added = path.slice(url.length);
      const hasPrefix = added.startsWith('/v1/');
      if (serves(hasPrefix ? added : `/v1${added}`))
        return `your base URL ends in ${url.slice('/v1'.length)}, which your client adds itself. Set it to ${this.#publicUrl()}${hasPrefix ? '' : '/v1'}.`;
    }
    return null;
  }

  /** What to do about a path that is not served, as whole sentences. */
  advise(method: string, target: string, headers: IncomingHttpHeaders): string {
    const path = pathOnly(target);
    const shown = path.length <= 100 && looksLikeName(path) ? `Unknown path ${path}` : 'Unknown path';
    const publicUrl = this.#publicUrl();
    if (/^\/v1\/v1(?:\/|$)/.test(path)) return `${shown}: ${this.#twice(path, headers, publicUrl)}`;
    const base = this.baseUrlFault(target);
    if (base !== null) return `${shown}: ${base}`;
    const meant = this.meant(method, target);
    if (meant?.endsWith(` ${path}`)) return `${path} does not serve ${method}. Did you mean ${meant}?`;
    if (meant !== null) return `${shown}. Did you mean ${meant}?`;
    const area = path.split('/')[1] ?? '';
    if (this.#areas.has(area)) return `${shown}: your base URL lacks /v1. Set it to ${publicUrl}/v1.`;
    return `${shown}. The API begins at ${publicUrl}/v1; its reference is at ${publicUrl}/docs.`;
  }

  #twice(path: string, { 'user-agent': agent = '', ...headers }: IncomingHttpHeaders, publicUrl: string): string {
    const adds = /anthropic|claude/i.test(agent) || headers['anthropic-version'] !== undefined;
    // Some clients of Anthropic's API are only known by what they ask for.
    if (adds || (path.startsWith('/v1/v1/messages') && !/openai/i.test(agent)))
      return `your base URL already ends in /v1. The client adds /v1 itself, as the Anthropic SDK does: set its base URL to ${publicUrl}.`;
    if (/openai|portkey/i.test(agent)) return `your base URL has /v1 twice. Set it to ${publicUrl}/v1.`;
    return `it has /v1 twice. Set your base URL to ${publicUrl}/v1, or to ${publicUrl} if your client adds /v1 itself.`;
  }
}

/** How far a path is from a route: 0 is the same, infinity is another one. */
function distance(asked: readonly string[], parts: Route['parts']): number {
  const missing = parts.length - asked.length;
  if (missing < 0 || missing > MOST_LEFT_OUT || asked[0] !== parts[0]) return Number.POSITIVE_INFINITY;
  const tail = asked.slice(1);
  const whole = partsDistance(tail, parts.slice(1));
  if (missing === 0) return whole;
  // Its beginning or its end was left out: /v1/users is meant to be /v1/admin/users.
  const end = parts.slice(0, 1 + missing).includes(null)
    ? Number.POSITIVE_INFINITY
    : partsDistance(tail, parts.slice(1 + missing));
  const begin = parts.slice(-missing).includes(null)
    ? Number.POSITIVE_INFINITY
    : partsDistance(tail, parts.slice(1, -missing));
  return Math.min(end, begin) + missing * LEFT_OUT;
}

function partsDistance(asked: readonly string[], parts: Route['parts']): number {
  let sum = 0;
  for (const [index, part] of parts.entries()) {
    if (part === null) {
      // A route that names the part is meant before one that takes anything there; its name may not be a parameter.
      if (index === 0) return Number.POSITIVE_INFINITY;
      sum += 0.5;
      continue;
    }
    const own = asked[index] ?? '';
    if (own !== part) sum += wrong(own, part);
  }
  return sum;
}

/** How wrong one part is: as singular and plural, `_` and `-`, British and American, or few wrong characters. */
function wrong(asked: string, part: string): number {
  const [a, b] = [plain(asked), plain(part)];
  if (a === b) return 1;
  const most = b.length >= 8 ? 2 : b.length >= 4 ? 1 : 0;
  if (Math.abs(a.length - b.length) > most) return Number.POSITIVE_INFINITY;
  const characters = editDistance(a, b);
  return characters > most ? Number.POSITIVE_INFINITY : 1 + characters;
}

const plain = (part: string): string =>
  part
    .toLowerCase()
    .replace(/[_.]/g, '-')
    .replace(/ies$/, 'y')
    .replace(/s$/, '')
    .replace(/organiz/, 'organis');
