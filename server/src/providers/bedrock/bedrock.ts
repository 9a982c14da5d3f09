import { account } from '../account.ts';
import { AWS_FIELDS, fromAwsVirtualKey } from '../aws/account.ts';
import { awsAuthType } from '../aws/credentials.ts';
import { readAwsError } from '../aws/errors.ts';
import { signRequest } from '../aws/sign-request.ts';
import { bearer } from '../openai-compatible.ts';
import type { Bindings, CallContext, Provider } from '../provider.ts';
import { batches } from './batches.ts';
import { chat } from './chat.ts';
import { countTokens, messages } from './claude.ts';
import { countConverse } from './count-tokens.ts';
import { embeddings } from './embeddings.ts';
import { conversePrefill, isClaude, modelBehind } from './families.ts';
import { files } from './files.ts';
import { controlBase } from './hosts.ts';
import { images } from './images.ts';
import { jobs } from './jobs.ts';
import { model, models } from './models.ts';
import { rerank } from './rerank.ts';

/** Bedrock reads nothing but what lies in S3. */
function isWebAddress(url: string): boolean {
  return /^https?:\/\//.test(url);
}

/** Messages of these reach Converse through chat. */
const ANY: Bindings = {
  chat: { ...chat, prefill: conversePrefill, inlines: isWebAddress },
  count_tokens: { ...countConverse, inlines: isWebAddress },
  embeddings,
  rerank,
  images_generate: images,
  models,
  model,
};
const CLAUDE: Bindings = {
  ...ANY,
  messages: { ...messages, prefill: conversePrefill, inlines: isWebAddress },
  count_tokens: { ...countTokens, inlines: isWebAddress },
};

const signs = ({ credentials }: Pick<CallContext, 'credentials'>): boolean => awsAuthType(credentials) !== 'apiKey';

/** Amazon Bedrock. The base URL is that of its control plane; calls of models have another host. */
export const bedrock: Provider = {
  id: 'bedrock',
  title: 'Amazon Bedrock',
  account: account(AWS_FIELDS, fromAwsVirtualKey),
  needsKey: false,
  baseUrl: controlBase,
  statelessPaths: ['POST model/*/count-tokens'],
  hostHint: 'The AWS account names no region, or one that is none; set aws_region, or send x-gateway-aws-region.',
  authorize(headers, context) {
    if (!signs(context)) bearer(headers, context);
  },
  sign: (context) => (signs(context) || context.credentials.key === null ? signRequest('bedrock') : null),
  bindings: ANY,
  bindingsOf: (name, credentials) => (isClaude(modelBehind({ model: name, credentials })) ? CLAUDE : ANY),
  allBindings: { any: ANY, claude: CLAUDE },
  passThrough: false,
  error: readAwsError,
  training: { jobs, files, batches },
};
