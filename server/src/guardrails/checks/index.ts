/** Every check, by its id. Adding one is a file here and a line in this list. */
import type { Check } from '../check.ts';
import { containsCode } from './code.ts';
import { contains } from './contains.ts';
import { characterCount, sentenceCount, wordCount } from './counts.ts';
import { allUpperCase, endsWith, isAllLowerCase, notNull } from './form.ts';
import { HOSTED } from './hosted/index.ts';
import { inlineImageUrls } from './images.ts';
import { promptInjection } from './injection.ts';
import { jsonKeys, jsonSchema } from './json.ts';
import { jwt } from './jwt.ts';
import { gibberish, language } from './language.ts';
import { requiredMetadataKeyPairs, requiredMetadataKeys } from './metadata.ts';
import { pii } from './pii.ts';
import { addPrefix } from './prefix.ts';
import { regexMatch } from './regex-match.ts';
import { allowedRequestTypes, modelRules, modelWhitelist, requestParametersCheck } from './request.ts';
import { secrets } from './secrets.ts';
import { validUrls } from './urls.ts';
import { log, webhook } from './webhook.ts';

export const CHECKS: ReadonlyMap<string, Check> = new Map(
  [
    regexMatch,
    sentenceCount,
    wordCount,
    characterCount,
    allUpperCase,
    isAllLowerCase,
    endsWith,
    contains,
    containsCode,
    jsonSchema,
    jsonKeys,
    validUrls,
    notNull,
    modelWhitelist,
    modelRules,
    allowedRequestTypes,
    requiredMetadataKeys,
    requiredMetadataKeyPairs,
    requestParametersCheck,
    jwt,
    addPrefix,
    inlineImageUrls,
    webhook,
    log,
    pii,
    language,
    gibberish,
    secrets,
    promptInjection,
    ...HOSTED,
  ].map((one) => [one.id, one]),
);
