import { z } from 'zod';
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { Subject } from '../check.ts';
import { ANY_TARGET, check, INPUT, LLM, not, text, texts, verdict } from './support.ts';

/** Request types that guardrails can name. */
export const REQUEST_TYPES = [
  'complete',
  'chatComplete',
  'embed',
  'rerank',
  'moderate',
  'proxy',
  'imageGenerate',
  'createSpeech',
  'createTranscription',
  'createTranslation',
  'realtime',
  'uploadFile',
  'listFiles',
  'retrieveFile',
  'deleteFile',
  'retrieveFileContent',
  'createBatch',
  'retrieveBatch',
  'cancelBatch',
  'listBatches',
  'getBatchOutput',
  'listFinetunes',
  'createFinetune',
  'retrieveFinetune',
  'cancelFinetune',
  'createModelResponse',
  'getModelResponse',
  'deleteModelResponse',
  'listResponseInputItems',
  'messages',
] as const;

const models = texts(2_000, 500);

/** Every model that a call may reach: some APIs take a list of models, of which any may answer. */
function askedFor({ model, otherModels = [], request }: Subject): readonly string[] {
  const asked = [...(model === null ? [] : [model]), ...otherModels];
  const body = request();
  if (!isObject(body)) return asked;
  for (const list of [body.models, body.fallbacks]) {
    for (const one of Array.isArray(list) ? list : []) {
      const name: unknown = isObject(one) ? one.model : one;
      if (typeof name === 'string') asked.push(name);
    }
  }
  return asked;
}

/** Whether a list names the model: by its id, or with the provider before it (`openai/gpt-5`, `@openai/gpt-5`). */
function names(list: ReadonlySet<string>, model: string, provider: string | null): boolean {
  return (
    list.has(model) || (provider !== null && (list.has(`${provider}/${model}`) || list.has(`@${provider}/${model}`)))
  );
}

/** What a list keeps out, it keeps out in any spelling that a provider may take for it. */
const loosely = (name: string): string => name.trim().toLowerCase();

/**
 * `default.modelWhitelist`: every model asked for is listed (`not`, `inverse`: none is). A call without model is not judged.
 */
export const modelWhitelist = check({
  id: 'default.modelWhitelist',
  judges: 'fields',
  phases: INPUT,
  targets: LLM,
  parameters: z.strictObject({ models, not, inverse: not }),
  timeoutMs: null,
  mutates: false,
  compile({ models: listed, not: inverted, inverse }) {
    const list = new Set(listed);
    const loose = new Set(listed.map(loosely));
    return {
      lookBehind: null,
      judge(subject) {
        const asked = askedFor(subject);
        if (asked.length === 0)
          return { verdict: true, data: { explanation: 'The call names no model.', skipped: true } };
        const { provider } = subject;
        const ok =
          inverted || inverse
            ? asked.some((model) => names(loose, loosely(model), provider))
            : asked.every((model) => names(list, model, provider));
        return verdict(ok, inverted || inverse, ok ? 'The model is listed.' : 'The model is not listed.');
      },
    };
  },
});

/**
 * `default.modelRules`: which models the request's metadata allow. The lists of all metadata entries that match are
 * joined and take the place of `defaults`; `*` is every model. A call without model is not judged.
 */
export const modelRules = check({
  id: 'default.modelRules',
  judges: 'fields',
  phases: INPUT,
  targets: LLM,
  parameters: z.strictObject({
    rules: z
      .strictObject({
        defaults: z.array(text(500)).max(2_000).default([]),
        metadata: z.record(text(128), z.record(text(500), z.array(text(500)).max(2_000))).default({}),
      })
      .refine(
        ({ defaults, metadata }) => defaults.length > 0 || Object.keys(metadata).length > 0,
        'must have defaults or metadata',
      ),
    not,
  }),
  timeoutMs: null,
  mutates: false,
  compile({ rules, not: inverted }) {
    const defaults = new Set(rules.defaults);
    const byMetadata = Object.entries(rules.metadata).map(
      ([key, values]) => [key, new Map(Object.entries(values).map(([value, list]) => [value, new Set(list)]))] as const,
    );
    return {
      lookBehind: null,
      judge(subject) {
        const asked = askedFor(subject);
        if (asked.length === 0)
          return { verdict: true, data: { explanation: 'The call names no model.', skipped: true } };
        const lists: ReadonlySet<string>[] = [];
        for (const [key, values] of byMetadata) {
          const value = Object.hasOwn(subject.metadata, key) ? subject.metadata[key] : undefined;
          const list = value === undefined ? undefined : values.get(value);
          if (list !== undefined) lists.push(list);
        }
        const source = lists.length > 0 ? 'metadata' : 'defaults';
        const rules = lists.length > 0 ? lists : [defaults];
        const allowed = (model: string) =>
          rules.some(
            (list) =>
              list.has('*') ||
              names(list, model, subject.provider) ||
              (inverted && names(loosened(list), loosely(model), subject.provider)),
          );
        const ok = inverted ? asked.some(allowed) : asked.every(allowed);
        return verdict(ok, inverted, `The model is ${ok ? '' : 'not '}allowed by ${source}.`, { rule: source });
      },
    };
  },
});

const loosened = (list: ReadonlySet<string>): ReadonlySet<string> => new Set([...list].map(loosely));

const types = z.array(z.enum(REQUEST_TYPES)).max(REQUEST_TYPES.length);

/** `default.allowedRequestTypes`: blocked wins; without `allowedTypes` everything that is not blocked is allowed. */
export const allowedRequestTypes = check({
  id: 'default.allowedRequestTypes',
  judges: 'head',
  phases: INPUT,
  targets: LLM,
  parameters: z
    .strictObject({ allowedTypes: types.optional(), blockedTypes: types.optional() })
    .refine(
      (value) => (value.allowedTypes?.length ?? 0) + (value.blockedTypes?.length ?? 0) > 0,
      'must have allowedTypes or blockedTypes',
    ),
  timeoutMs: null,
  mutates: false,
  compile({ allowedTypes = [], blockedTypes = [] }) {
    const allowed = new Set<string>(allowedTypes);
    const blocked = new Set<string>(blockedTypes);
    return {
      lookBehind: null,
      judge({ requestType }) {
        const ok = !blocked.has(requestType) && (allowed.size === 0 || allowed.has(requestType));
        return verdict(ok, false, `Requests of type ${requestType} are ${ok ? '' : 'not '}allowed.`);
      },
    };
  },
});

const primitive = z.union([z.string().max(2_000), z.number(), z.boolean(), z.null()]);
const list = z.array(text(500)).max(1_000).optional();
const values = z.array(primitive).max(1_000).optional();

/** What a request is about rather than how it is carried out: allowed whatever `allowedKeys` says, unless it is blocked. */
const CONTENT_KEYS = new Set(['model', 'messages', 'input', 'prompt', 'system', 'instructions', 'contents']);

/**
 * `default.requestParametersCheck`: tools by type and function name, top-level keys of the body, and their values. Blocked
 * wins over allowed; a list that is absent allows everything, an empty one nothing. `values` judges keys that are there.
 */
export const requestParametersCheck = check({
  id: 'default.requestParametersCheck',
  judges: 'fields',
  phases: INPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({
    tools: z
      .strictObject({ allowedTypes: list, blockedTypes: list, allowedFunctionNames: list, blockedFunctionNames: list })
      .optional(),
    params: z
      .strictObject({
        allowedKeys: list,
        blockedKeys: list,
        values: z.record(text(500), z.strictObject({ allowedValues: values, blockedValues: values })).optional(),
      })
      .optional(),
  }),
  timeoutMs: null,
  mutates: false,
  compile({ tools = {}, params = {} }) {
    const types = choice(tools.allowedTypes, tools.blockedTypes);
    const functions = choice(tools.allowedFunctionNames, tools.blockedFunctionNames);
    const contentKeys = choice(undefined, params.blockedKeys);
    const otherKeys = choice(params.allowedKeys, params.blockedKeys);
    const rules = new Map(
      Object.entries(params.values ?? {}).map(([key, { allowedValues, blockedValues }]) => [
        key,
        {
          json: choice(allowedValues, blockedValues),
          // Forms have texts only.
          form: choice(allowedValues?.map(String), blockedValues?.map(String)),
        },
      ]),
    );
    return {
      lookBehind: null,
      judgesParameters: Object.keys(params).length > 0,
      judge(subject) {
        const body = subject.request();
        const form = isObject(body) ? undefined : subject.form?.();
        const members: readonly (readonly [string, unknown])[] = isObject(body) ? Object.entries(body) : (form ?? []);
        if (!isObject(body) && form === undefined)
          return verdict(true, false, 'The request has no JSON object and is no form.');
        const faults: string[] = [];
        for (const [at, { type, name }] of toolsOf(isObject(body) ? body : {}).entries()) {
          if (type !== null && !types(type)) faults.push(`${at}: type`);
          if (name !== null && !functions(name)) faults.push(`${at}: function name`);
        }
        const toolFaults = faults.map((fault) => `tool ${fault}`);
        const keyFaults = members
          .filter(([key]) => !(CONTENT_KEYS.has(key) ? contentKeys(key) : otherKeys(key)))
          .map(([key]) => `key ${key.slice(0, 64)}`);
        const valueFaults = members
          .filter(([key, value]) => rules.get(key)?.[form === undefined ? 'json' : 'form'](value) === false)
          .map(([key]) => `value of ${key}`);
        const all = [...toolFaults, ...keyFaults, ...valueFaults].slice(0, 20);
        return verdict(
          all.length === 0,
          false,
          all.length === 0 ? 'Tools and parameters are allowed.' : `Not allowed: ${all.join(', ')}.`,
        );
      },
    };
  },
});

/** Whether a value is allowed: blocked wins, and what is absent allows everything. */
function choice(
  allowed: readonly unknown[] | undefined,
  blocked: readonly unknown[] = [],
): (value: unknown) => boolean {
  const yes = allowed && new Set(allowed);
  const no = new Set(blocked);
  return (value) => !no.has(value) && (yes === undefined || yes.has(value));
}

/** Tools of a body in any dialect: with a `function` object, flat, or as the older `functions`; forced choices too. */
function toolsOf(body: JsonObject): { readonly type: string | null; readonly name: string | null }[] {
  const out: { type: string | null; name: string | null }[] = [];
  const add = (tool: unknown, fallback: string) => {
    if (!isObject(tool)) return;
    const inner = isObject(tool.function) ? tool.function : tool;
    const name = typeof inner.name === 'string' ? inner.name : null;
    // Tools of a provider that are named by their member: `{"google_search": {}}`.
    const types = typeof tool.type === 'string' ? [tool.type] : name !== null ? [fallback] : Object.keys(tool);
    for (const type of types) out.push({ type, name });
  };
  for (const tool of Array.isArray(body.tools) ? body.tools : []) {
    const declared = isObject(tool) ? (tool.functionDeclarations ?? tool.function_declarations) : undefined;
    if (Array.isArray(declared)) for (const one of declared) add(one, 'function');
    else add(tool, 'function');
  }
  for (const tool of Array.isArray(body.functions) ? body.functions : []) add(tool, 'function');
  return out;
}
