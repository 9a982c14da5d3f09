/** Requests that checks of requests let pass and refuse. */
import type { SubjectParts } from '../support/guardrails.ts';

export type Row = readonly [
  id: string,
  parameters: Record<string, unknown>,
  passes: readonly SubjectParts[],
  fails: readonly SubjectParts[],
];
const model = (...names: (string | null)[]) => names.map((name) => ({ model: name }));
const metadata = (...all: Record<string, string>[]) => all.map((one) => ({ metadata: one }));
const type = (...all: string[]) => all.map((requestType) => ({ requestType }));
const body = (...all: unknown[]) => all.map((request) => ({ request }));
const tool = (name: string, kind = 'function') => ({ tools: [{ type: kind, function: { name } }] });

// biome-ignore format: a table is read by column
export const REQUEST_ROWS: readonly Row[] = [
  ['default.modelWhitelist', { models: ['gpt-5', 'claude-x', 'openai/o9', '@openai/o8', '模型'] }, model('gpt-5', 'claude-x', 'o9', 'o8', '模型', null), model('gpt-5-mini', 'GPT-5', '', 'gpt', 'openai/gpt-5', ' gpt-5', 'o9 ', '*', '模')],
  ['default.modelWhitelist', { models: ['a', 'b'], not: true }, model('c', 'd', 'e', '', 'ab', null, 'ä', 'a/b'), model('a', 'b', 'A', 'a ')],
  ['default.modelWhitelist', { models: ['x', 'y', 'z'], inverse: true }, model('a', 'xx', 'w', 'x/y', '1', '×'), model('x', 'y', 'z', 'X', '\tY')],
  ['default.modelWhitelist', { models: ['q'] }, model('q'), model('r', 's', 't', 'qq', 'Q', 'q.')],
  ['default.modelRules', { rules: { defaults: ['small'], metadata: { team: { a: ['big'], b: ['*'], 'ü': ['uni'] }, tier: { gold: ['gold-1'] } } } },
    [{ model: 'small' }, { model: 'big', metadata: { team: 'a' } }, { model: 'any', metadata: { team: 'b' } }, { model: 'uni', metadata: { team: 'ü' } }, { model: 'gold-1', metadata: { tier: 'gold' } }, { model: 'big', metadata: { team: 'a', tier: 'gold' } }, { model: 'gold-1', metadata: { team: 'a', tier: 'gold' } }, { model: 'small', metadata: { team: 'c' } }, { model: 'small', metadata: { other: 'a' } }, { model: null }],
    [{ model: 'big' }, { model: 'small', metadata: { team: 'a' } }, { model: 'big', metadata: { team: 'A' } }, { model: 'gold-1', metadata: { tier: 'silver' } }, { model: 'small', metadata: { tier: 'gold' } }, { model: '*' }, { model: '' }, { model: 'uni', metadata: { team: 'u\u0308' } }, { model: 'big', metadata: { team: 'a ' } }, { model: 'x', metadata: { team: 'a', tier: 'gold' } }]],
  ['default.modelRules', { rules: { defaults: ['*'] } }, model('a', 'b', '', '漢', 'x/y', 'A', null, '1', '*', ' '), []],
  ['default.modelRules', { rules: { defaults: ['m1', 'm2'] }, not: true }, [], model('m1', 'm2')],
  ['default.modelRules', { rules: { metadata: { k: { v: ['m'] } } } }, [{ model: 'm', metadata: { k: 'v' } }], [...model('m', 'n', 'o', 'p', 'q', 'r', 's'), { model: 'n', metadata: { k: 'v' } }]],
  ['default.allowedRequestTypes', { allowedTypes: ['chatComplete', 'embed', 'messages'] }, type('chatComplete', 'embed', 'messages'), type('complete', 'rerank', 'proxy', 'chatcomplete', '', 'CHATCOMPLETE', 'realtime', 'createBatch', 'uploadFile', 'listFiles', 'chatComplété', 'embed\u200b', '漢字')],
  ['default.allowedRequestTypes', { blockedTypes: ['proxy', 'realtime'] }, type('chatComplete', 'embed', 'complete', 'rerank', 'moderate', 'imageGenerate', 'createSpeech', 'messages', 'createModelResponse', 'listFiles', 'deleteFile', 'createBatch', 'cancelBatch', 'listBatches', 'retrieveFile', 'createFinetune'), type('proxy', 'realtime')],
  ['default.allowedRequestTypes', { allowedTypes: ['proxy', 'embed'], blockedTypes: ['proxy'] }, type('embed'), type('proxy', 'chatComplete', 'messages', 'moderate', 'x', 'Embed', 'createSpeech', 'rerank')],
  ['default.requiredMetadataKeys', { metadataKeys: ['team', 'ü'] }, metadata({ team: '', ü: '' }, { team: '1', ü: '2', x: '3' }, { ü: 'a', team: 'b' }, { team: ' ', ü: '漢' }), metadata({}, { team: 'a' }, { ü: 'a' }, { Team: 'a', ü: 'b' }, { team: 'a', Ü: 'b' }, { team: 'a', 'u\u0308': 'b' }, { ' team': 'a', ü: 'b' })],
  ['default.requiredMetadataKeys', { metadataKeys: ['a', 'b'], operator: 'any' }, metadata({ a: '' }, { b: '' }, { a: '1', b: '2' }, { a: '1', c: '2' }, { b: '漢' }, { b: '', x: '' }), metadata({}, { c: 'a' }, { A: 'a' }, { ab: '1' }, { '': 'a' }, { 'a ': '' })],
  ['default.requiredMetadataKeys', { metadataKeys: ['toString', 'x'], operator: 'none' }, metadata({}, { a: 'x' }, { X: '1' }, { tostring: '1' }, { y: 'x' }, { 'x ': '' }, { '': '' }, { ü: '' }, { constructor: '1' }, { xx: '' }), metadata({ x: '' }, { toString: '1' }, { x: '1', y: '2' }, { x: '0' }, { x: '漢' }, { toString: '' }, { toString: '', x: '' })],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { team: ['red', 'blue'], env: 'prod' } }, metadata({ team: 'red', env: 'prod' }, { team: 'blue', env: 'prod' }, { team: 'blue', env: 'prod', x: '1' }), metadata({}, { team: 'red' }, { env: 'prod' }, { team: 'green', env: 'prod' }, { team: 'Red', env: 'prod' }, { team: 'red', env: 'production' }, { team: 'red,blue', env: 'prod' })],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { tags: ['a', 'ü'] }, matchType: 'contains' }, metadata({ tags: 'a' }, { tags: 'xax' }, { tags: 'ü' }, { tags: 'b,ü' }, { tags: 'aü' }), metadata({ tags: '' }, { tags: 'b' }, { tags: 'A' }, { tags: 'u\u0308' }, {})],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { tags: ['a', '漢'] }, matchType: 'containsAll' }, metadata({ tags: 'a漢' }, { tags: '漢,a' }, { tags: 'xa 漢y' }, { tags: 'aa漢漢' }), metadata({ tags: 'a' }, { tags: '漢' }, { tags: '' }, {})],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { id: ['^\\d{3}$', '^x'], n: [7] }, matchType: 'regex', operator: 'any' }, metadata({ id: '123' }, { id: 'xyz' }, { n: '7' }, { n: '17' }, { id: 'no', n: '7' }), metadata({ id: '12' }, { id: '1234' }, { n: '8' }, {}, { id: 'X' })],
  ['default.requiredMetadataKeyPairs', { metadataPairs: { env: 'prod', debug: true }, operator: 'none' }, metadata({}, { env: 'dev' }, { debug: 'false' }, { env: 'PROD' }, { env: '' }), metadata({ env: 'prod' }, { debug: 'true' }, { env: 'prod', debug: 'false' })],
  ['default.requestParametersCheck', { tools: { allowedFunctionNames: ['search', '查'], blockedTypes: ['computer'] } }, [...body({}, tool('search'), tool('查'), { tools: [] }, { tools: [{ name: 'search', input_schema: {} }] }, { functions: [{ name: 'search' }] }, { tools: [{ type: 'web' }] }, 'text', null, { tools: 'x' }), {}], body(tool('delete'), tool('Search'), tool('search', 'computer'), { tools: [{ type: 'computer' }] }, { functions: [{ name: 'rm' }] }, { tools: [{ functionDeclarations: [{ name: 'rm' }] }] }, { tools: [tool('search').tools[0], { name: 'x' }] })],
  ['default.requestParametersCheck', { tools: { allowedTypes: ['function'] } }, body(tool('search'), { tools: [{ name: 'x' }] }), body({ tools: [{ google_search: {} }] }, { tools: [{ codeExecution: {} }] })],
  ['default.requestParametersCheck', { params: { allowedKeys: ['temperature'], blockedKeys: ['input'] } }, body({}, { temperature: 1 }, { model: 'a', messages: [] }, { prompt: 'a', temperature: 0 }), body({ top_p: 1 }, { input: 'x' }, { Temperature: 1 }, { temperature: 1, n: 2 }, { '': 1 }, { ü: 1 })],
  ['default.requestParametersCheck', { params: { values: { n: { allowedValues: [1, 2, null] }, mode: { blockedValues: ['raw', true] } } } }, body({}, { n: 1 }, { n: 2, mode: 'x' }, { n: null }, { mode: 'RAW' }, { mode: false }), body({ n: 3 }, { n: '1' }, { n: [1] }, { mode: 'raw' }, { mode: true }, { n: 1, mode: 'raw' }, { n: {} }, { n: 1.5 })],
];
