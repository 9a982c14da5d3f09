/**
 * Which target a request means: reads the routing headers, the config and the model, refuses what is
 * incomplete or contradictory with a message that says what is missing, and builds the compiled Target.
 */

import { unreadHint } from '../gateway/unread-headers.ts';
import type { CheckedUrl } from '../http/egress-guard.ts';
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import { nearest } from '../kernel/nearest.ts';
import { looksLikeName, quotedName } from '../kernel/quoted.ts';
import { Secret } from '../kernel/secret.ts';
import { PROVIDERS, providerById } from '../providers/catalog.ts';
import type { Credentials, Provider } from '../providers/provider.ts';
import { accountSettings, accountValue, type Config, SECRET_KEYS } from '../resources/configs/schema.ts';
import { type OpenedStored, openAccount } from '../runtime/opened-account.ts';
import type { OpenedAccount, StoredProvider } from '../runtime/snapshot.ts';
import { cachePolicy } from './cache/policy.ts';
import type { Uses } from './exchange.ts';
import { misspelt } from './misspelt.ts';
import { headerSettings, heldSettings, KEEPS_ACCOUNT, movedPin, pinRefused } from './provider-headers.ts';
import type { Retry } from './relay/retry-rules.ts';
import { compileBreak, compileLimits } from './relay/retry-rules.ts';
import { compileShaping, modelUnder, type Shaping } from './shaping.ts';
import type { LlmRequest } from './state/request.ts';
import { Target } from './target.ts';

const DEFAULT_RETRY_CODES = [429, 500, 502, 503, 504, 529];

export interface Selection {
  /** Config in force, or null. */
  readonly config: Config | null;
  readonly configPath: string;
  /** The config is a stored one: credentials in it are the workspace's, not the caller's own. */
  readonly saved: boolean;
  /** Slug in the model (`@slug/model`), already taken off. */
  readonly modelSlug: string | null;
  /** Asked for in place of the request's own. */
  readonly model?: string;
}

function bad(message: string, errors?: readonly string[]): SluiceError {
  return new SluiceError('malformed_call', message, errors ? { errors } : {});
}

/** Features of a config that would change what is let through: refused rather than skipped. */
export function refuseUnexecuted(config: Config): void {
  if (config.prompt_id) {
    throw new SluiceError(
      'unsupported_operation',
      'This config names prompt_id, which this version of Sluice does not execute.',
    );
  }
}

/**
 * Builds the target of a request, or answers null when it names no provider at all. A promise only while the credential
 * of an account is opened for the first time; the egress rules that need DNS act when the socket is opened.
 */
export function findTarget(
  x: Uses<'request', 'clock' | 'egress' | 'timeouts'>,
  selection: Selection,
): Target | Promise<Target> | null {
  const provider = x.request.header('x-gateway-provider');
  const header = {
    // For files, batches and jobs the name of Sluice itself, and of no account.
    provider: provider === 'gateway' && x.request.operation.family === 'job' ? undefined : provider,
    virtualKey: x.request.header('x-gateway-virtual-key'),
    customHost: x.request.header('x-gateway-custom-host'),
  };
  const config = selection.config;
  const named = config === null || config.passthrough ? null : namedByConfig(config);

  if (config?.passthrough) return passedThrough(x, selection, header.provider);
  if (
    named === null &&
    header.virtualKey !== undefined &&
    header.provider !== undefined &&
    header.provider.replace(/^@/, '') !== header.virtualKey
  ) {
    throw bad('Send either x-gateway-virtual-key or x-gateway-provider, not both.');
  }
  const slug =
    named !== null
      ? named.slug
      : (header.virtualKey ??
        (header.provider?.startsWith('@') ? header.provider.slice(1) : null) ??
        (header.provider === undefined ? selection.modelSlug : null));
  const raw = named !== null ? named.raw : slug === null ? (header.provider ?? null) : null;

  if (slug !== null && selection.modelSlug !== null && selection.modelSlug !== slug && named === null) {
    throw bad(
      `The model names provider ${quotedName(`@${selection.modelSlug}`)} and the headers name ${quotedName(`@${slug}`)}; name one of them only.`,
    );
  }
  const customHost = config?.custom_host ?? header.customHost ?? null;

  if (slug !== null) return storedTarget(x, selection, slug, customHost);
  if (raw !== null) return callerTarget(x, selection, raw, customHost);
  return null;
}

/** A passthrough target is what the request itself names: the header comes before the model. */
function passedThrough(
  x: Uses<'request', 'clock' | 'egress' | 'timeouts'>,
  selection: Selection,
  provider: string | undefined,
): Target | Promise<Target> {
  const slug = provider?.startsWith('@') ? provider.slice(1) : selection.modelSlug;
  if (slug === null || slug === '') {
    throw bad(
      'The config passes requests through to the provider that they name: send x-gateway-provider: @slug or a model of the form @slug/model.',
    );
  }
  return storedTarget(
    x,
    selection,
    slug,
    selection.config?.custom_host ?? x.request.header('x-gateway-custom-host') ?? null,
  );
}

/** As `findTarget`; a request that names no provider is refused. */
export function selectTarget(
  x: Uses<'request', 'clock' | 'egress' | 'paths' | 'timeouts'>,
  selection: Selection,
): Target | Promise<Target> {
  const target = findTarget(x, selection);
  if (target === null) throw unnamedProvider(x, selection.config);
  return target;
}

/** What to tell a caller that named no provider: what was sent, and what of it is missing. */
export function unnamedProvider(x: Uses<'request', 'paths'>, config: Config | null): SluiceError {
  if (x.request.header('x-gateway-custom-host') !== undefined)
    return bad('x-gateway-custom-host also needs x-gateway-provider and Authorization: Bearer <provider token>.');
  if (config !== null) {
    return bad(
      'The config names no provider; add provider, virtual_key or targets to it, or send x-gateway-provider: @slug or a model of the form @slug/model.',
    );
  }
  if (x.request.callerToken !== null) {
    return bad(
      'Authorization carries a provider token, but x-gateway-provider is missing; name the provider, for example x-gateway-provider: openai.',
    );
  }
  const remedy = ' To pass it on to a provider, name one: send x-gateway-provider: @slug.';
  return (
    misspelt(x, remedy) ??
    bad(`No provider is named. ${unnamedRemedy(x.request)}${unreadHint(x.request.incoming.headers)}`)
  );
}

const LISTED = 'GET /v1/providers lists the slugs.';

function unnamedRemedy({ model, operation, snapshot }: LlmRequest): string {
  // Files, batches and jobs may be Sluice's own, whatever model a job trains.
  const own =
    operation.family === 'job' ? ', or x-gateway-provider: gateway for files, batches and jobs that Sluice keeps' : '';
  if (model.startsWith('@')) {
    const slug = model.slice(1).replace(/\/.*/s, '');
    const known = snapshot?.providers.has(slug) === true;
    return `The model ${quotedName(model)} ${known ? 'has no name of a model' : 'is not of the form @slug/model'}: send ${known ? `@${slug}/<model>` : 'a model as @openai-prod/gpt-4o'}. ${LISTED}`;
  }
  if (model !== '') {
    const [slug = ''] = model.split('/', 1);
    const meant =
      slug !== model && snapshot?.providers.has(slug)
        ? `Did you mean the model ${quotedName(`@${model}`)}?`
        : `Send the model as ${looksLikeName(model) ? `@slug/${model}` : '@slug/model'}, or the header x-gateway-provider: @slug${own}. ${LISTED}`;
    return `The model ${quotedName(model)} says no provider. ${meant}`;
  }
  const asModel = operation.family === 'job' || operation.body === 'none' ? '' : 'a model of the form @slug/model, ';
  return `Send ${asModel}the header x-gateway-provider: @slug or x-gateway-config${own}. ${LISTED} To use your own provider token, send x-gateway-provider: <name> and Authorization: Bearer <provider token>.`;
}

/** Whom a config, else the request, names: a stored provider or a base one. Nothing is looked up or refused. */
export function namedBy(
  request: LlmRequest,
  config: Config,
  modelSlug: string | null,
): { slug: string | null; raw: string | null } {
  const own = config.passthrough === true ? null : namedByConfig(config);
  if (own !== null) return own;
  const header = request.header('x-gateway-provider');
  const key = config.passthrough === true ? undefined : request.header('x-gateway-virtual-key');
  if (key !== undefined) return { slug: key, raw: null };
  if (header?.startsWith('@')) return { slug: header.slice(1), raw: null };
  if (header === undefined || config.passthrough === true) return { slug: modelSlug, raw: null };
  return { slug: null, raw: header };
}

function namedByConfig(config: Config): { slug: string | null; raw: string | null } | null {
  if (config.virtual_key) return { slug: config.virtual_key, raw: null };
  if (config.provider?.startsWith('@')) return { slug: config.provider.slice(1), raw: null };
  const model = (config.override_params as JsonObject | undefined)?.model;
  if (config.provider) return { slug: null, raw: config.provider };
  if (typeof model === 'string' && model.startsWith('@'))
    return { slug: model.slice(1, Math.max(1, model.indexOf('/'))), raw: null };
  return null;
}

function knownProvider(id: string): Provider {
  const provider = providerById(id);
  if (provider === undefined) {
    throw bad(
      `Provider ${quotedName(id)} is not known. Known are: ${[...PROVIDERS.keys()].join(', ')}; stored ones are named with a leading @.`,
    );
  }
  return provider;
}

/** The target of a stored provider or virtual key that a body names (`gateway_options`). */
export function namedTarget(
  x: Uses<'outcome' | 'request', 'clock' | 'egress' | 'timeouts'>,
  slug: string,
): Target | Promise<Target> {
  const model = x.outcome.asked(x.request);
  const selection = { config: null, configPath: 'gateway_options', saved: false, modelSlug: null, model };
  return storedTarget(x, selection, slug, null);
}

/** A stored provider or virtual key: Sluice's own credential travels, so only its own hosts may be reached. */
function storedTarget(
  x: Uses<'request', 'clock' | 'egress' | 'timeouts'>,
  selection: Selection,
  slug: string,
  customHost: string | null,
): Target | Promise<Target> {
  const stored: StoredProvider | undefined = x.request.snapshot?.providers.get(slug);
  if (stored === undefined) {
    const integration = x.request.snapshot?.orphans?.get(slug);
    if (integration !== undefined) {
      throw bad(
        `Provider @${slug} cannot be used: its integration ${integration} was deleted. Add the integration again and make a provider of it, or name another provider; GET /v1/providers lists them.`,
      );
    }
    const meant = x.request.snapshot === null ? null : nearest(slug, x.request.snapshot.providers.keys());
    const hint = meant === null ? 'GET /v1/providers lists those there are.' : `Did you mean @${meant}?`;
    throw bad(`No provider or virtual key with the slug ${quotedName(slug)} exists in this workspace. ${hint}`);
  }
  if (stored.broken !== null || stored.provider === null) {
    throw new SluiceError('out_of_service', stored.broken ?? 'The stored provider cannot be used.');
  }
  if (stored.expiresAt !== null && stored.expiresAt <= x.services.clock.now()) {
    throw bad(`Provider ${slug} has expired; extend its expires_at or use another one.`);
  }
  // Callers write configs too, and must not reach by one what is not enabled.
  const asked = modelUnder(shapingOf(selection.config), selection.model ?? x.request.model);
  const model = stored.models.get(asked.toLowerCase());
  if (model ? !model.enabled : !stored.allowAllModels && asked !== '') {
    throw bad(
      `Model ${quotedName(asked)} is not enabled on the integration of provider ${slug}. GET /v1/models lists those that are.`,
    );
  }
  const { provider } = stored;
  const made = openAccount(stored, model?.secrets ?? null);
  if (!(made instanceof Promise)) return accountTarget(x, selection, { stored, provider, asked, customHost, ...made });
  return made.then((opened) => accountTarget(x, selection, { stored, provider, asked, customHost, ...opened }));
}

/** A stored provider that may be called, with what was sealed of it. */
interface StoredCall extends OpenedStored {
  readonly stored: StoredProvider;
  readonly provider: Provider;
  /** The model. */
  readonly asked: string;
  readonly customHost: string | null;
}

function accountTarget(x: Uses<'request', 'egress' | 'timeouts'>, selection: Selection, call: StoredCall): Target {
  const { stored, provider, asked, customHost, account, model: sealed } = call;
  const { slug } = stored;
  const model = stored.models.get(asked.toLowerCase());
  const saved = model?.customHost ?? account.customHost;
  // Beside a key of the model nothing else of the account travels: they may go to another host than the account's.
  const own = sealed?.key == null ? account : { key: sealed.key, settings: {}, customHeaders: {} };
  const wished = { ...headerSettings(x.request, false), ...configSettings(selection.config, false) };
  const held = heldSettings(provider, own.settings, { ...own.customHeaders, ...sealed?.customHeaders });
  const pin = movedPin(held, wished);
  if (pin !== null) throw pinRefused(slug, pin);
  const settings = { ...held, ...wished };
  const placed = place(provider, { key: own.key, settings }, asked);
  const saving = { ...own.settings, ...(selection.saved ? configSettings(selection.config, false) : null) };
  const usually = { key: own.key, settings: saving };
  const usual = place(provider, usually, asked).model;
  const chosen =
    placed.model === null || placed.model === usual
      ? null
      : (place(provider, usually, placed.model).priced ?? placed.model);
  if (!stored.allowAllModels) checkDeployment(stored, place(provider, account, asked).model, placed);
  const { credentials } = placed;
  const base = provider.baseUrl(credentials);
  const wanted = customHost ?? saved ?? base;
  // Settings that are stored with a model go where the model goes.
  const alone = sealed !== null && (sealed.key !== null || Object.keys(sealed.customHeaders).length > 0);
  const hosts = (alone ? [saved ?? base] : [saved, account.customHost, base]).filter((host) => host !== null);
  const allowed = hosts.map((host) => new URL(host).origin);
  if (stored.shared && customHost !== null && !hosts.some((host) => placeOf(host) === placeOf(customHost))) {
    throw new SluiceError(
      'forbidden',
      `Provider @${slug} is an account that several workspaces share; the custom host must be one that is saved on it, with the same path.`,
      { param: 'custom_host' },
    );
  }
  const until = Math.min(
    stored.expiresAt ?? Number.POSITIVE_INFINITY,
    stored.account.until,
    model?.secrets?.until ?? Number.POSITIVE_INFINITY,
  );
  const customHeaders = { ...own.customHeaders, ...sealed?.customHeaders };
  const named = { ...placed, chosen, propagate: account.settings.propagate === true, opened: account };
  return build(x, selection, provider, stored, named, wanted, true, allowed, customHeaders, until);
}

/** Where a base URL leads, however it is written: another path would make another request of what was judged. */
function placeOf(host: string): string {
  if (!URL.canParse(host)) return host;
  const { origin, pathname } = new URL(host);
  return origin + pathname.replace(/\/+$/, '');
}

/** A raw provider name: the caller brings the token itself. */
function callerTarget(
  x: Uses<'request', 'egress' | 'timeouts'>,
  selection: Selection,
  name: string,
  customHost: string | null,
): Target {
  const provider = knownProvider(name);
  const key = selection.config?.api_key ?? x.request.callerToken;
  if (key === null && provider.needsKey) {
    throw bad(
      `x-gateway-provider: ${provider.id} also needs Authorization: Bearer <provider token> beside x-gateway-api-key; for a stored credential use x-gateway-provider: @slug.`,
    );
  }
  const sealed =
    selection.saved && SECRET_KEYS.some((name) => accountValue(selection.config ?? {}, name) !== undefined);
  if (sealed && selection.config?.provider === undefined) {
    throw bad(
      'The saved config holds a credential and names no provider that it is for; save "provider" beside the credential.',
    );
  }
  if (sealed && customHost !== null && selection.config?.custom_host == null) {
    throw bad(
      'x-gateway-custom-host cannot be sent with a saved config that holds a credential; save custom_host in the config, or send your own provider token.',
    );
  }
  const settings = { ...headerSettings(x.request, !sealed), ...configSettings(selection.config, true) };
  for (const [name, value] of Object.entries(settings)) {
    // Providers parse these, and the text is to be judged before: parsing makes an ordinary host of an odd one.
    if (typeof value === 'string' && /^https?:/i.test(value)) {
      x.services.egress.check(value, { storedCredential: sealed, param: name });
    }
  }
  const credentials = { key: key === null ? null : new Secret(key), settings };
  const placed = place(provider, credentials, modelUnder(shapingOf(selection.config), x.request.model));
  const url = customHost ?? provider.baseUrl(placed.credentials);
  return build(x, selection, provider, null, placed, url, sealed, null, {});
}

/** What a model is called in an account, and the settings that go with it. */
interface Placed {
  readonly credentials: Credentials;
  /** Null: the model's own name. */
  readonly model: string | null;
  /** Where it is another than the account's own settings would give. */
  readonly chosen?: string | null;
  /** The account is sent the trace, wherever it is. */
  readonly propagate?: boolean;
  /** What it was made of. */
  readonly opened?: OpenedAccount;
  readonly priced: string | null;
}

function place(provider: Provider, credentials: Credentials, model: string): Placed {
  return provider.placeModel?.(credentials, model) ?? { credentials, model: null, priced: null };
}

/** A caller that names a deployment reaches its model, which must be one that is enabled. */
function checkDeployment(stored: StoredProvider, own: string | null, placed: Placed): void {
  if (placed.model === own || stored.models.get(placed.model?.toLowerCase() ?? '')?.enabled === true) return;
  throw bad(
    `Deployment ${quotedName(placed.model ?? '')} is not enabled as a model on the integration of provider ${stored.slug}.`,
  );
}

/**
 * Cloud and account settings a config may carry beside its routing keys. Beside a stored credential (`own` false) only
 * those count that can neither change the account nor move it to another host.
 */
const configSettings = (config: Config | null, own: boolean): Record<string, unknown> =>
  config === null ? {} : accountSettings(config, own ? null : KEEPS_ACCOUNT);

function build(
  x: Uses<'request', 'egress' | 'timeouts'>,
  selection: Selection,
  provider: Provider,
  stored: StoredProvider | null,
  placed: Placed,
  url: string | null,
  storedCredential: boolean,
  allowedOrigins: readonly string[] | null,
  customHeaders: Readonly<Record<string, string>>,
  until?: number,
): Target {
  const config = selection.config;
  let checked: CheckedUrl | null = null;
  if (provider.local === undefined) {
    if (url === null)
      throw bad(
        provider.hostHint ??
          `Provider ${provider.id} has no default host. Send x-gateway-custom-host or save a custom_host.`,
      );
    checked = x.services.egress.check(url, {
      storedCredential,
      allowedOrigins,
      param: 'x-gateway-custom-host',
    });
  }
  const timeout = config?.request_timeout ?? headerTimeout(x.request);
  return new Target({
    path: selection.configPath,
    provider,
    stored,
    credentials: placed.credentials,
    ...(until === undefined ? {} : { until }),
    opened: placed.opened ?? null,
    placed: placed.model === null ? null : { model: placed.model, priced: placed.priced },
    chosen: placed.chosen ?? null,
    url: checked?.url ?? null,
    propagates: checked !== null && (checked.trusted || placed.propagate === true),
    customHeaders: Object.entries(customHeaders).flatMap(([name, value]) => [name.toLowerCase(), value]),
    shaping: shapingOf(config),
    forwardHeaders: config?.forward_headers ?? [],
    timeoutMs: timeout,
    limits: compileLimits(config?.timeouts, timeout, x.services.timeouts),
    onBreak: compileBreak(config?.stream),
    hedge: config?.hedge ? { delayMs: config.hedge.delay, max: config.hedge.max ?? 1 } : null,
    retry: compileRetry(config, x.request),
    cache: cachePolicy(x.request, config),
    strict: config?.strict_open_ai_compliance ?? x.request.header('x-gateway-strict-open-ai-compliance') !== 'false',
  });
}

/** `override_params.model` may be `@slug/model`: the slug routed already, the model goes upstream. */
function shapingOf(config: Config | null): Shaping | null {
  if (config === null) return null;
  const overrides = config.override_params as JsonObject | undefined;
  const model = overrides?.model;
  const named = typeof model === 'string' && model.startsWith('@');
  return compileShaping({
    override_params: named ? { ...overrides, model: model.slice(model.indexOf('/') + 1) } : overrides,
    default_params: config.default_params as JsonObject | undefined,
    drop_params: config.drop_params,
  });
}

function headerTimeout(request: LlmRequest): number | null {
  const text = request.header('x-gateway-request-timeout');
  if (text === undefined) return null;
  if (!/^[1-9]\d{0,8}$/.test(text))
    throw bad('x-gateway-request-timeout must be a whole number of milliseconds, at least 1.');
  return Number(text);
}

function compileRetry(config: Config | null, request: LlmRequest): Retry | null {
  const text = request.header('x-gateway-retry-count');
  if (text !== undefined && !/^[0-5]$/.test(text))
    throw bad('x-gateway-retry-count must be a whole number from 0 to 5.');
  const retry = config?.retry ?? (text === undefined ? undefined : { attempts: Number(text) });
  if (!retry || retry.attempts === 0) return null;
  return {
    attempts: retry.attempts,
    statusCodes: new Set(retry.on_status_codes ?? DEFAULT_RETRY_CODES),
    useRetryAfter: retry.use_retry_after_headers ?? false,
  };
}
