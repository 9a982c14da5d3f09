import { generateKeyPairSync } from 'node:crypto';
import { createLocalJWKSet, exportJWK, jwtVerify } from 'jose';
import { headersFault, jsonOperation, type Operation } from './hosted-service.ts';
import { signatureFault } from './sigv4.ts';

/** What must never be repeated: the thing that is found in the text. */
export const FOUND = '4111 1111 1111 1111';
export const TEXT = `😀 my card is ${FOUND}, thanks`;

/** One check as it is used: what it sends for one text, and what the service may say of it. */
export interface Case {
  readonly id: string;
  /** Those of `gateway.moderateContent` and the like that must be sent. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** What of `parameters` is secret, as it must not appear anywhere. */
  readonly key: string;
  readonly phases: readonly ('input' | 'output')[];
  /** The request for one text, as the service publishes it. */
  operations(phase: 'input' | 'output', text: string, redact: boolean): Operation[];
  /** Answer for texts with nothing in them. */
  readonly clear: unknown;
  /** Answer that speaks against the text, and the names that are told. */
  readonly found: unknown;
  readonly names: readonly string[];
  /** Answer with which a check that redacts passes, and the text that goes on. */
  readonly redacted?: { readonly answer: unknown; readonly text: string; readonly phases?: readonly ['output'] };
}

const bearer = { authorization: 'Bearer key-of-the-test' };
const key = 'key-of-the-test';
const MASKED = '😀 my card is ***, thanks';
const unit = TEXT.indexOf(FOUND);
/** Code points before it: the emoji is one. */
const point = unit - 1;

const openai = ['hate', 'harassment', 'sexual', 'violence', 'self-harm/intent'];
const flags = (names: readonly string[], flagged: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, flagged.includes(name)]));

const BEDROCK = { accessKeyId: 'AKIATEST', secretAccessKey: 'key-of-the-test', region: 'eu-west-1' };
const arn = 'arn:aws:bedrock:eu-west-1:123456789012:guardrail/abc123';

const pair = generateKeyPairSync('rsa', { modulusLength: 2048 });
const serviceAccount = {
  type: 'service_account',
  client_email: 'guard@project.iam.gserviceaccount.com',
  private_key: pair.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  private_key_id: 'key-1',
  token_uri: 'https://evil.example/token',
};
export const TOKEN_URL = 'https://oauth2.googleapis.com/token';

/** What is wrong with an assertion of the service account (RFC 7523). */
export async function assertionFault(form: string, now: number): Promise<string | null> {
  const fields = new URLSearchParams(form);
  if (fields.get('grant_type') !== 'urn:ietf:params:oauth:grant-type:jwt-bearer') return 'wrong grant_type';
  const set = createLocalJWKSet({ keys: [{ ...(await exportJWK(pair.publicKey)), kid: 'key-1', alg: 'RS256' }] });
  const { payload } = await jwtVerify(fields.get('assertion') ?? '', set, {
    audience: TOKEN_URL,
    issuer: serviceAccount.client_email,
    currentDate: new Date(now),
  });
  return payload.scope === 'https://www.googleapis.com/auth/cloud-platform' ? null : 'wrong scope';
}

const tokenOperation: Operation = {
  url: TOKEN_URL,
  fault: ({ headers }) =>
    headersFault(headers, { 'content-type': 'application/x-www-form-urlencoded', accept: 'application/json' }),
};

const quiet = { matchState: 'NO_MATCH_FOUND', executionState: 'EXECUTION_SUCCESS' };
const armor = (filterMatchState: string, filterResults: Record<string, unknown>) => ({
  sanitizationResult: { filterMatchState, invocationResult: 'SUCCESS', filterResults },
});

const azure = { endpoint: 'https://mine.cognitiveservices.azure.com/', apiKey: key };
const azureHeaders = { 'ocp-apim-subscription-key': key };
const severities = (severity: number) => ({
  blocklistsMatch: [],
  categoriesAnalysis: ['Hate', 'SelfHarm', 'Sexual', 'Violence'].map((category) => ({
    category,
    severity: category === 'Violence' ? severity : 0,
  })),
});
const pii = (entities: unknown[]) => ({
  kind: 'PiiEntityRecognitionResults',
  results: {
    documents: [{ id: '1', redactedText: '', entities, warnings: [] }],
    errors: [],
    modelVersion: '2023-09-01',
  },
});

export const CASES: readonly Case[] = [
  {
    id: 'gateway.moderateContent',
    parameters: { categories: openai, credentials: { apiKey: key } },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation('https://api.openai.com/v1/moderations', bearer, () => ({
        model: 'omni-moderation-latest',
        input: [text],
      })),
    ],
    clear: {
      id: 'modr-1',
      model: 'omni-moderation-latest',
      results: [{ flagged: false, categories: flags(openai, []) }],
    },
    found: { id: 'modr-1', results: [{ flagged: true, categories: flags(openai, ['violence', 'hate']) }] },
    names: ['hate', 'violence'],
  },
  {
    id: 'mistral.moderateContent',
    parameters: { categories: ['pii', 'selfharm'], credentials: { apiKey: key } },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation('https://api.mistral.ai/v1/moderations', bearer, () => ({
        model: 'mistral-moderation-latest',
        input: [text],
      })),
    ],
    clear: { results: [{ categories: flags(['pii', 'selfharm', 'law'], ['law']), category_scores: {} }] },
    found: { results: [{ categories: flags(['pii', 'selfharm', 'law'], ['pii']), category_scores: {} }] },
    names: ['pii'],
  },
  {
    id: 'azure.contentSafety',
    parameters: { blocklistNames: ['mine'], credentials: azure },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation(
        'https://mine.cognitiveservices.azure.com/contentsafety/text:analyze?api-version=2024-09-01',
        azureHeaders,
        () => ({
          text,
          categories: ['Hate', 'SelfHarm', 'Sexual', 'Violence'],
          blocklistNames: ['mine'],
          haltOnBlocklistHit: false,
          outputType: 'FourSeverityLevels',
        }),
      ),
    ],
    clear: severities(0),
    found: {
      ...severities(2),
      blocklistsMatch: [{ blocklistName: 'mine', blocklistItemId: 'a', blocklistItemText: FOUND }],
    },
    names: ['blocklist mine', 'Violence'],
  },
  {
    id: 'azure.pii',
    parameters: { categories: ['CreditCardNumber'], credentials: azure },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation(
        'https://mine.cognitiveservices.azure.com/language/:analyze-text?api-version=2023-04-01',
        azureHeaders,
        () => ({
          kind: 'PiiEntityRecognition',
          parameters: {
            modelVersion: 'latest',
            loggingOptOut: true,
            domain: 'none',
            piiCategories: ['CreditCardNumber'],
            stringIndexType: 'Utf16CodeUnit',
          },
          analysisInput: { documents: [{ id: '1', language: 'en', text }] },
        }),
      ),
    ],
    clear: pii([]),
    found: pii([{ text: FOUND, category: 'CreditCardNumber', offset: unit, length: 19, confidenceScore: 0.9 }]),
    names: ['CreditCardNumber'],
    redacted: {
      answer: pii([{ text: FOUND, category: 'CreditCardNumber', offset: unit, length: 19, confidenceScore: 0.9 }]),
      text: '😀 my card is {{CreditCardNumber_1}}, thanks',
    },
  },
  {
    id: 'bedrock.guard',
    parameters: { guardrailId: arn, guardrailVersion: '3', credentials: BEDROCK },
    key,
    phases: ['input', 'output'],
    operations(phase, text) {
      const path = `/guardrail/${encodeURIComponent(arn)}/version/3/apply`;
      return [
        {
          url: `https://bedrock-runtime.eu-west-1.amazonaws.com${path}`,
          fault(request) {
            const expected = { region: 'eu-west-1', service: 'bedrock', keys: [BEDROCK] };
            const wrong =
              headersFault(request.headers, {
                'content-type': 'application/json',
                accept: 'application/json',
                authorization: /^AWS4-HMAC-SHA256 /,
                'x-amz-date': '20260101T000000Z',
              }) ?? signatureFault(request, expected);
            if (wrong !== null) return wrong;
            const wanted = { source: phase === 'input' ? 'INPUT' : 'OUTPUT', content: [{ text: { text } }] };
            const body = request.body.toString('utf8');
            return body === JSON.stringify(wanted) ? null : body;
          },
        },
      ];
    },
    clear: { action: 'NONE', outputs: [], assessments: [{ invocationMetrics: {} }], usage: {} },
    found: {
      action: 'GUARDRAIL_INTERVENED',
      outputs: [{ text: 'Sorry.' }],
      assessments: [
        {
          contentPolicy: { filters: [{ type: 'VIOLENCE', confidence: 'HIGH', action: 'BLOCKED' }] },
          topicPolicy: { topics: [{ name: 'Investment advice', type: 'DENY', action: 'BLOCKED' }] },
          wordPolicy: { customWords: [{ match: FOUND, action: 'BLOCKED' }] },
        },
      ],
    },
    names: ['VIOLENCE', 'Investment advice', 'word'],
    redacted: {
      answer: {
        action: 'GUARDRAIL_INTERVENED',
        outputs: [{ text: MASKED }],
        assessments: [
          {
            sensitiveInformationPolicy: {
              piiEntities: [{ match: FOUND, type: 'CREDIT_DEBIT_CARD_NUMBER', action: 'ANONYMIZED' }],
            },
          },
        ],
      },
      text: MASKED,
    },
  },
  {
    id: 'google.modelArmor',
    parameters: {
      projectId: 'project-1',
      location: 'europe-west4',
      templateId: 'strict',
      credentials: { serviceAccount },
    },
    key: 'PRIVATE KEY',
    phases: ['input', 'output'],
    operations(phase, text) {
      const template =
        'https://modelarmor.europe-west4.rep.googleapis.com/v1/projects/project-1/locations/europe-west4/templates/strict';
      return [
        tokenOperation,
        jsonOperation(
          `${template}:${phase === 'input' ? 'sanitizeUserPrompt' : 'sanitizeModelResponse'}`,
          { authorization: 'Bearer google-token' },
          () => (phase === 'input' ? { userPromptData: { text } } : { modelResponseData: { text } }),
        ),
      ];
    },
    clear: armor('NO_MATCH_FOUND', {
      csam: { csamFilterFilterResult: quiet },
      sdp: { sdpFilterResult: { inspectResult: quiet } },
    }),
    // As the published example has it: the sum says that nothing matched, a filter that it did.
    found: armor('NO_MATCH_FOUND', {
      csam: { csamFilterFilterResult: quiet },
      rai: { raiFilterResult: { ...quiet, raiFilterTypeResults: { dangerous: { matchState: 'MATCH_FOUND' } } } },
      pi_and_jailbreak: { piAndJailbreakFilterResult: { ...quiet, matchState: 'MATCH_FOUND' } },
    }),
    names: ['rai', 'pi_and_jailbreak'],
    redacted: {
      answer: armor('MATCH_FOUND', {
        csam: { csamFilterFilterResult: quiet },
        sdp: {
          sdpFilterResult: {
            deidentifyResult: {
              executionState: 'EXECUTION_SUCCESS',
              matchState: 'MATCH_FOUND',
              data: { text: MASKED },
            },
          },
        },
      }),
      text: MASKED,
    },
  },
  {
    id: 'presidio.analyze',
    parameters: { analyzerURL: 'https://analyzer.example/', entities: ['CREDIT_CARD'], scoreThreshold: 0.5 },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation('https://analyzer.example/analyze', {}, () => ({
        text,
        language: 'en',
        entities: ['CREDIT_CARD'],
        score_threshold: 0.5,
      })),
    ],
    clear: [],
    found: [{ entity_type: 'CREDIT_CARD', start: point, end: point + 19, score: 1, analysis_explanation: null }],
    names: ['CREDIT_CARD'],
    redacted: {
      answer: [{ entity_type: 'CREDIT_CARD', start: point, end: point + 19, score: 1 }],
      text: '😀 my card is {{CREDIT_CARD_1}}, thanks',
    },
  },
  {
    id: 'lakera.guard',
    parameters: { projectId: 'project-1', credentials: { apiKey: key } },
    key,
    phases: ['input', 'output'],
    operations: (_, text, redact) => [
      jsonOperation('https://api.lakera.ai/v2/guard', bearer, () => ({
        messages: [{ role: 'user', content: text }],
        project_id: 'project-1',
        breakdown: true,
        ...(redact ? { payload: true } : null),
      })),
    ],
    clear: { flagged: false, breakdown: [{ detector_type: 'prompt_attack', detected: false }], metadata: {} },
    found: { flagged: true, breakdown: [{ detector_type: 'prompt_attack', detected: true }] },
    names: ['prompt_attack'],
    redacted: {
      answer: {
        flagged: true,
        breakdown: [
          { detector_type: 'prompt_attack', detected: false },
          { detector_type: 'pii/credit_card', detected: true },
        ],
        payload: [
          { detector_type: 'pii/credit_card', start: point, end: point + 19, text: FOUND, labels: [], message_id: 0 },
        ],
      },
      text: '😀 my card is {{pii/credit_card_1}}, thanks',
    },
  },
  {
    id: 'panwPrismaAirs.intercept',
    parameters: { profileName: 'strict', appName: 'app', credentials: { apiKey: key } },
    key,
    phases: ['input', 'output'],
    operations: (phase, text) => [
      jsonOperation(
        'https://service.api.aisecurity.paloaltonetworks.com/v1/scan/sync/request',
        { 'x-pan-token': key },
        () => ({
          ai_profile: { profile_name: 'strict' },
          metadata: { app_name: 'app', ai_model: 'gpt-5' },
          contents: [phase === 'input' ? { prompt: text } : { response: text }],
        }),
      ),
    ],
    clear: {
      action: 'allow',
      category: 'benign',
      prompt_detected: { dlp: false },
      response_detected: {},
      scan_id: 'a',
    },
    found: {
      action: 'block',
      category: 'malicious',
      prompt_detected: { dlp: true, injection: true },
      response_detected: { dlp: true, injection: true },
      prompt_masked_data: { data: MASKED },
      response_masked_data: { data: MASKED },
    },
    names: ['dlp', 'injection'],
    redacted: {
      answer: {
        action: 'block',
        category: 'malicious',
        prompt_detected: { dlp: true, injection: false },
        response_detected: { dlp: true, injection: false },
        prompt_masked_data: { data: MASKED, pattern_detections: [] },
        response_masked_data: { data: MASKED, pattern_detections: [] },
      },
      text: MASKED,
    },
  },
  {
    id: 'pangea.textGuard',
    parameters: { recipe: 'pangea_prompt_guard', credentials: { token: key, domain: 'aws.eu.pangea.cloud' } },
    key,
    phases: ['input', 'output'],
    operations: (_, text) => [
      jsonOperation('https://ai-guard.aws.eu.pangea.cloud/v1/text/guard', bearer, () => ({
        text,
        recipe: 'pangea_prompt_guard',
      })),
    ],
    clear: {
      status: 'Success',
      result: { blocked: false, prompt_text: TEXT, detectors: { pii_entity: { detected: true, data: {} } } },
    },
    found: {
      status: 'Success',
      summary: FOUND,
      result: {
        blocked: true,
        prompt_text: TEXT,
        detectors: {
          prompt_injection: { detected: true, data: { analyzer_responses: [] } },
          pii_entity: { detected: false, data: null },
        },
      },
    },
    names: ['prompt_injection'],
    redacted: {
      answer: {
        status: 'Success',
        result: {
          blocked: false,
          prompt_text: MASKED,
          detectors: { pii_entity: { detected: true, data: { entities: [{ type: 'CREDIT_CARD', value: FOUND }] } } },
        },
      },
      text: MASKED,
    },
  },
  {
    id: 'pangea.promptGuard',
    parameters: { analyzers: ['PA4002'], credentials: { token: key } },
    key,
    phases: ['input'],
    operations: (_, text) => [
      jsonOperation('https://prompt-guard.aws.us.pangea.cloud/v1/guard', bearer, () => ({
        messages: [{ role: 'user', content: text }],
        analyzers: ['PA4002'],
      })),
    ],
    clear: { status: 'Success', result: { detected: false, confidence: 0.1, analyzer: '', type: '' } },
    found: { status: 'Success', result: { detected: true, confidence: 0.72, analyzer: 'PA4002', type: 'direct' } },
    names: ['PA4002'],
  },
  {
    id: 'aporia.validateProject',
    parameters: { projectID: 'b9c1', credentials: { apiKey: key } },
    key,
    phases: ['input', 'output'],
    operations: (phase, text) => [
      jsonOperation('https://gr-prd.aporia.com/b9c1/validate', { 'x-aporia-api-key': key }, () =>
        phase === 'input'
          ? { messages: [{ role: 'user', content: text }], validation_target: 'prompt', explain: false }
          : {
              messages: [{ role: 'user', content: 'What is my card?' }],
              response: text,
              validation_target: 'response',
              explain: false,
            },
      ),
    ],
    clear: { action: 'passthrough', revised_response: null },
    found: { action: 'block', revised_response: FOUND },
    names: ['block'],
    redacted: { answer: { action: 'modify', revised_response: MASKED }, text: MASKED, phases: ['output'] },
  },
];
