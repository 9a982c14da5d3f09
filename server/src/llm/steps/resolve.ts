import { createHash } from 'node:crypto';
import { copiedHeaders, metadataOf, metadataUnder } from '../../gateway/metadata.ts';
import { hostFault } from '../../http/host-fault.ts';
import { SluiceError } from '../../kernel/errors.ts';
import { parseJson } from '../../kernel/json-exact.ts';
import { decodeString } from '../../kernel/json-scan.ts';
import { pathOnly } from '../../kernel/path-only.ts';
import { quotedName, shownPath } from '../../kernel/quoted.ts';
import { type LimitClass, limitClassOf } from '../../limits/limit-class.ts';
import { type ModelReference, parseModel } from '../../providers/models.ts';
import { type Config, parseConfig } from '../../resources/configs/schema.ts';
import type { StoredConfig, WorkspaceSnapshot } from '../../runtime/snapshot.ts';
import type { HeadUses, Uses } from '../exchange.ts';
import { guardPlan } from '../guard/plan.ts';
import { isManaged } from '../managed.ts';
import { passedPath } from '../misspelt.ts';
import { answerModels, wantsIntegratedModels } from '../models.ts';
import { makePlan, NONE, type Plan, SOME, targetFeatures } from '../plan.ts';
import { findTarget, refuseUnexecuted, selectTarget } from '../resolve-target.ts';
import { routeOf } from '../routing/route.ts';
import { objectLeaf } from '../routing/route-execution.ts';
import { isNeutral } from '../routing-headers.ts';
import type { RequestBody } from '../state/body.ts';
import type { LlmRequest, RequestHead } from '../state/request.ts';
import { countsRates, countsUse, type Target } from '../target.ts';

/** A disk that is full is tried again every second: what refused callers wait, in seconds. */
const UNRECORDED_S = 2;

const MAX_PLANS = 1000;

/** Makes the plan of the request of its headers, its config and its model. */
export function resolve(
  x: HeadUses<
    'attempt' | 'limits' | 'outcome' | 'request' | 'execution',
    | 'clock'
    | 'egress'
    | 'headersToMetadata'
    | 'paths'
    | 'pricer'
    | 'recorder'
    | 'storeClock'
    | 'timeouts'
    | 'unrecorded'
  >,
): void | Promise<void> {
  const {
    request: { snapshot },
  } = x;
  if (snapshot === null) throw new SluiceError('forbidden', 'Inference needs a key bound to a workspace.');
  return plan(x, snapshot);
}

function plan(
  x: HeadUses<
    'attempt' | 'limits' | 'outcome' | 'request' | 'execution',
    | 'clock'
    | 'egress'
    | 'headersToMetadata'
    | 'paths'
    | 'pricer'
    | 'recorder'
    | 'storeClock'
    | 'timeouts'
    | 'unrecorded'
  >,
  snapshot: WorkspaceSnapshot,
): void | Promise<void> {
  const { headersToMetadata: names } = x.services;
  const copied = names.length === 0 ? null : copiedHeaders(x.request, names);
  x.request.metadata = metadataOf(x.request, snapshot, copied, bodyText(x.request.body, 'user'));
  const defaults = x.request.principal?.defaults;
  const header = x.request.header('x-gateway-config');
  if (header !== undefined && defaults?.allow_config_override === false) {
    throw new SluiceError(
      'invalid_request',
      'This API key pins its config; send the request without x-gateway-config.',
    );
  }
  x.request.model = x.request.params.deployment ?? x.request.model;
  const { slug, model } = modelIn(x.request);
  x.request.model = model;
  const reference = header ?? defaults?.config_id;
  const inline = reference?.trimStart().startsWith('{') ?? false;

  const objects = x.request.operation.family === 'job';
  const managed = objects && isManaged(x.request);
  // Limits of the key belong to the caller: a plan is shared between keys that all have some, or none.
  const limitedKey = (x.request.principal?.rateLimits.length ?? 0) > 0;
  const budgetedKey = x.request.principal?.usageLimits != null;
  const limitClass = limitClassFor(x.request);
  if (limitClass === 'uses' && x.services.recorder.failing) refuseUnrecorded(x);
  // No header has a line break, and a slug and a model have any: one text must not stand for two requests.
  const memoKey =
    inline || !isNeutral(x.request) || managed
      ? null
      : `${limitedKey ? 'limited' : ''}${budgetedKey ? 'budgeted' : ''}|${x.request.operation.id}${limitClass === 'uses' ? '' : ` ${limitClass}`}\n${reference ?? ''}\n${x.request.header('x-gateway-virtual-key') ?? ''}\n${x.request.header('x-gateway-provider') ?? ''}\n${slug?.length ?? 0}:${slug ?? ''}${model}`;
  const known = memoKey === null ? undefined : (snapshot.plans.get(memoKey) as Plan | undefined);
  if (known !== undefined && (known.target?.until ?? Number.POSITIVE_INFINITY) > x.services.clock.now()) {
    x.request.plan = known;
    x.attempt.target = known.target;
    addMetadata(x.request, known.metadata);
    return;
  }

  const stored = reference === undefined || inline ? null : storedConfig(snapshot, reference, header === undefined);
  const root = inline ? inlineConfig(x, reference ?? '') : (stored?.config ?? null);
  if (wantsIntegratedModels(x.request, root)) {
    answerModels(x, snapshot, root);
    return;
  }
  const metadata = root?.metadata ?? null;
  addMetadata(x.request, metadata);
  const route = root === null ? null : routeOf(root);
  const leaf = route === null ? null : objects ? objectLeaf(x, route.root) : route.root;
  const conditional = objects && route !== null && route.root.kind !== 'target';
  if (leaf !== null && leaf.kind !== 'target' && route !== null) {
    const shared = memoKey !== null;
    const version =
      stored?.versionId ??
      createHash('sha256')
        .update(reference ?? '')
        .digest('base64url');
    const place = `${snapshot.workspaceId} ${version}`;
    const ways = { route, place, saved: stored !== null, inline, modelSlug: slug, limitClass, shared };
    const needs = {
      rateLimits: limitClass !== 'reads' && (limitedKey || snapshot.rateLimits !== null || countsRates(snapshot, null)),
      usageLimits:
        limitClass === 'uses' && (budgetedKey || snapshot.usageLimits.length > 0 || countsUse(snapshot, null)),
      ...SOME,
    };
    const planned = { ...ways, targets: new Map(), guards: new Map() };
    x.request.plan = makePlan(null, planned, stored, null, needs, metadata);
    keepPlan(snapshot, memoKey, x.request.plan);
    return;
  }
  const only = leaf?.kind === 'target' ? leaf : null;
  const config = only?.config ?? null;
  if (config !== null) refuseUnexecuted(config);
  // A model of the form @slug/model may also come from the config's own parameters.
  const selection = {
    config,
    configPath: only?.path ?? 'config',
    saved: stored !== null,
    modelSlug: slug,
  };
  const planFor = (target: Target | null): void => {
    if (target !== null && !objects)
      target.bind(x.request.operation.id, target.sends(x.request.model), () => passedPath(x));
    const limited =
      limitClass !== 'reads' && (limitedKey || snapshot.rateLimits !== null || countsRates(snapshot, target));
    const budgeted =
      limitClass === 'uses' && (budgetedKey || snapshot.usageLimits.length > 0 || countsUse(snapshot, target));
    x.attempt.target = target;
    const guard = guardPlan(x.request.operation, snapshot, config, inline);
    const own = target === null || objects ? NONE : targetFeatures(x.request.operation, x.request.model, target);
    const needs = { rateLimits: limited, usageLimits: budgeted, ...own };
    x.request.plan = makePlan(target, null, stored, guard, needs, metadata);
    if (target?.stored != null && !conditional) keepPlan(snapshot, memoKey, x.request.plan);
  };
  // What Sluice keeps itself needs no account, but a job or a batch that it runs does.
  const needsNone = managed && x.request.operation.body !== 'json';
  const found = objects ? (needsNone ? null : findTarget(x, selection)) : selectTarget(x, selection);
  if (found instanceof Promise) return found.then(planFor);
  planFor(found);
}

/** The model of the body; of an address only the slug counts, because nothing is asked of the model that it names. */
function modelIn(request: RequestHead): ModelReference {
  const { model, params } = request;
  const named = params.model;
  if (named?.startsWith('@')) {
    const { slug, model: bare } = parseModel(named);
    request.params = { ...params, model: bare };
    return { slug, model };
  }
  return model.startsWith('@') ? parseModel(model) : { slug: null, model };
}

/** What a config says of its requests stands where neither they nor their key or workspace say anything else. */
function addMetadata(request: RequestHead, metadata: Plan['metadata']): void {
  if (metadata !== null) request.metadata = metadataUnder(metadata, request.metadata);
}

function keepPlan(snapshot: WorkspaceSnapshot, key: string | null, made: Plan): void {
  if (key === null) return;
  if (snapshot.plans.size >= MAX_PLANS) snapshot.plans.clear();
  snapshot.plans.set(key, made);
}

/** What costs is not begun while its record cannot be written, unless the operator wants it served all the same. */
function refuseUnrecorded({ request: { dryRun }, services }: Uses<'request', 'unrecorded'>): void {
  if (dryRun || services.unrecorded === 'serve') return;
  throw new SluiceError(
    'out_of_service',
    'Sluice cannot write request records at the moment, so it takes no new requests. Try again in a few seconds.',
    { retryAfter: UNRECORDED_S, detail: 'the journal cannot be written; see spool in GET /v1/operator/health' },
  );
}

function limitClassFor({ operation, incoming: request }: LlmRequest): LimitClass {
  const { method = '', headers, url = '' } = request;
  if (operation.limitClass !== 'path') return operation.limitClass;
  const { 'content-length': length = '0', 'transfer-encoding': coding } = headers;
  return limitClassOf(operation, method, pathOnly(url), length === '0' && coding === undefined);
}

function storedConfig(snapshot: WorkspaceSnapshot, reference: string, ofKey: boolean): StoredConfig {
  const found = snapshot.configs.get(reference);
  if (found === undefined) {
    const remedy = ofKey
      ? 'it is the default of your API key: change defaults.config_id of the key'
      : 'send the slug of a saved config (pc-…) or a JSON object';
    throw new SluiceError('malformed_call', `No config ${quotedName(reference)} exists in this workspace; ${remedy}.`);
  }
  if (found.broken !== null) throw new SluiceError('out_of_service', found.broken);
  return found;
}

function inlineConfig(x: Uses<never, 'egress'>, text: string): Config {
  let value: unknown;
  try {
    value = parseJson(text);
  } catch {
    throw new SluiceError(
      'malformed_call',
      'x-gateway-config is not valid JSON; send the slug of a saved config or a JSON object.',
    );
  }
  const parsed = parseConfig(value, { checkHost: (url) => hostFault(x.services.egress, url) });
  if (!parsed.ok) {
    // Official clients show the message only.
    const issues = parsed.issues.map(({ path, message }) => ({ path: shownPath(path), message }));
    const [first, ...more] = issues;
    const fault = `${first?.path || 'it'} ${first?.message}`;
    const others = more.length === 0 ? '' : '; see errors for the others';
    throw new SluiceError('malformed_call', `x-gateway-config is not a valid config: ${fault}${others}.`, {
      errors: issues.map((issue) => `path: ${issue.path}, message: ${issue.message}`),
    });
  }
  return parsed.config;
}

/** Text of a member of the body. */
function bodyText({ bytes, scan }: RequestBody, name: string): string | undefined {
  const range = scan?.get(name);
  return range?.kind === 'string' ? decodeString(bytes, range) : undefined;
}
