import { generateKeyPairSync } from 'node:crypto';
import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { contextOf } from '../../../test/support/provider-fixtures.ts';
import type { JsonValue } from '../../kernel/json.ts';
import { Secret } from '../../kernel/secret.ts';
import type { CallContext, Credentials } from '../provider.ts';
import { createTokenCache } from '../token-cache.ts';
import type { AccessContext, AdapterRequest } from '../training.ts';
import { vertexModel } from './model.ts';
import { vertexAi } from './vertex-ai.ts';

const { privateKey } = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  publicKeyEncoding: { type: 'spki', format: 'pem' },
});
const KEY_FILE = {
  type: 'service_account',
  project_id: 'project-of-key',
  private_key: privateKey,
  client_email: 'caller@project-of-key.iam.gserviceaccount.com',
};

const contextFor = (credentials: Credentials, model = 'gemini-2.5-flash'): CallContext =>
  contextOf('chat', { body: { model } }, { credentials });

function accessFor(credentials: Credentials, calls: AdapterRequest[]): AccessContext {
  const body: JsonValue = { access_token: 'ya29.granted', expires_in: 3600 };
  return {
    credentials,
    base: 'https://us-central1-aiplatform.googleapis.com/v1',
    customHost: false,
    call(request) {
      calls.push(request);
      const text = JSON.stringify(body);
      return Promise.resolve({
        status: 200,
        headers: {},
        text: () => Promise.resolve(text),
        json: () => Promise.resolve(body),
        stream: Readable.from([text]),
      });
    },
    header: () => undefined,
    now: () => 1_767_225_600_000,
    uuid: () => 'uuid',
    tokens: createTokenCache(() => 1_767_225_600_000),
  };
}

describe('an account of Vertex AI', () => {
  it('with a key file signs each call in with a token that is asked for once', async () => {
    const settings = { vertex_region: 'us-central1', vertex_service_account_json: KEY_FILE };
    const credentials = { key: null, settings };
    const calls: AdapterRequest[] = [];
    const access = accessFor(credentials, calls);
    const signer = vertexAi.sign?.(contextFor(credentials));
    if (!signer) throw new Error('it signs nothing');
    for (let i = 0; i < 2; i++) {
      const headers: string[] = [];
      vertexAi.authorize(headers, contextFor(credentials));
      expect(headers).toEqual([]);
      // What a caller has forwarded never stands beside the account's own.
      headers.push('x-goog-user-project', 'p', 'authorization', 'Bearer of-the-caller', 'api-key', 'k');
      const request = {
        method: 'POST',
        origin: '',
        path: '',
        headers,
        body: null,
        organisationId: '',
        storedCredential: true,
      };
      expect(await signer(request, access)).toEqual(['ya29.granted']);
      expect(headers).toEqual(['x-goog-user-project', 'p', 'authorization', 'Bearer ya29.granted']);
    }
    expect(calls.map(({ url }) => url.href)).toEqual(['https://oauth2.googleapis.com/token']);
  });

  it('names the project of its key file when no setting does', () => {
    const settings = { vertex_region: 'us-central1', vertex_service_account_json: KEY_FILE };
    const path = vertexAi.bindings.chat?.path(contextFor({ key: null, settings }));
    expect(path).toMatch(/^\/projects\/project-of-key\/locations\/us-central1\//);
  });

  it('with a key of its own sends it as what it is', () => {
    for (const [key, headers] of [
      ['ya29.token', ['authorization', 'Bearer ya29.token']],
      ['AIzaSyKey', ['x-goog-api-key', 'AIzaSyKey']],
      ['AQ.Ab8Key', ['x-goog-api-key', 'AQ.Ab8Key']],
    ] as const) {
      const credentials = { key: new Secret(key), settings: { vertex_auth_type: 'basic' } };
      const sent: string[] = [];
      vertexAi.authorize(sent, contextFor(credentials));
      expect(sent).toEqual(headers);
      expect(vertexAi.sign?.(contextFor(credentials))).toBeNull();
    }
  });
});

it.each([
  ['gemini-2.5-flash', 'google', 'gemini-2.5-flash'],
  ['google/gemini-2.5-flash', 'google', 'gemini-2.5-flash'],
  ['models/gemini-2.5-flash', 'google', 'gemini-2.5-flash'],
  ['publishers/google/models/imagen-4.0', 'google', 'imagen-4.0'],
  ['claude-opus-4-1@20250805', 'anthropic', 'claude-opus-4-1@20250805'],
  ['anthropic/claude-opus-4-1', 'anthropic', 'claude-opus-4-1'],
  ['publishers/anthropic/models/claude-opus-4-1', 'anthropic', 'claude-opus-4-1'],
  ['mistral-small-2503', 'mistralai', 'mistral-small-2503'],
  ['mistralai/codestral-2', 'mistralai', 'codestral-2'],
  ['meta/llama-3.3-70b-instruct-maas', 'meta', 'llama-3.3-70b-instruct-maas'],
  ['endpoints/77', 'endpoint', '77'],
  ['77', 'endpoint', '77'],
  ['projects/1/locations/x/endpoints/77', 'endpoint', '77'],
])('%s is a model of %s', (model, publisher, name) => {
  expect(vertexModel(model)).toEqual({ publisher, name });
});
