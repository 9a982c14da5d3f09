import { isObject } from '../../kernel/json.ts';
import { authType, googleToken } from '../google/credentials.ts';
import { googleError } from '../google/gemini-error.ts';
import { bearer } from '../openai-compatible.ts';
import type { CallContext, Provider } from '../provider.ts';
import { setBearer } from '../sign-in.ts';
import { vertexAccount } from './account.ts';
import { batches } from './batches.ts';
import { bindingsOf, GOOGLE, isApiKey, TABLES } from './bindings.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';
import { vertexModel } from './model.ts';
import { vertexBase } from './place.ts';

function authorize(headers: string[], context: CallContext): void {
  const { credentials, header, model } = context;
  const { key } = credentials;
  if (authType(credentials) === 'basic' && key !== null) {
    if (isApiKey(credentials)) headers.push('x-goog-api-key', key.reveal());
    else bearer(headers, context);
  }
  const kind = header('x-vertex-ai-llm-request-type');
  if (kind !== undefined) headers.push('x-vertex-ai-llm-request-type', kind);
  const beta = vertexModel(model).publisher === 'anthropic' ? header('anthropic-beta') : undefined;
  if (beta !== undefined) headers.push('anthropic-beta', beta);
}

/**
 * Google Vertex AI: models of several makers, tuning, files in Cloud Storage and batches. Which of the
 * settings an account needs depends on `vertex_auth_type`.
 */
export const vertexAi: Provider = {
  id: 'vertex-ai',
  title: 'Google Vertex AI',
  account: vertexAccount,
  // Only one of the three ways of signing in uses the key.
  needsKey: false,
  baseUrl: vertexBase,
  implied: ({ vertex_service_account_json: file }) =>
    isObject(file) && typeof file.project_id === 'string' ? { vertex_project_id: file.project_id } : {},
  statelessPaths: [
    'POST projects/*/locations/*/publishers/*/models/*:generatecontent',
    'POST projects/*/locations/*/publishers/*/models/*:streamgeneratecontent',
    'POST projects/*/locations/*/publishers/*/models/*:counttokens',
    'POST projects/*/locations/*/publishers/*/models/*:embedcontent',
    'POST projects/*/locations/*/publishers/*/models/*:predict',
    'POST projects/*/locations/*/publishers/*/models/*:rawpredict',
    'POST projects/*/locations/*/publishers/*/models/*:streamrawpredict',
  ],
  authorize,
  sign({ credentials }) {
    if (authType(credentials) === 'basic') return null;
    return async ({ headers }, access) => {
      const token = await googleToken(access);
      setBearer(headers, token);
      return [token];
    };
  },
  bindings: GOOGLE,
  bindingsOf,
  allBindings: TABLES,
  passThrough: false,
  error: googleError,
  training: { jobs, files, batches },
};
