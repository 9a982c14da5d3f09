import { z } from 'zod';
import { savedHeaderProblem } from '../../kernel/header-names.ts';
import { isObject } from '../../kernel/json.ts';
import { parseJson, UnreadJsonError } from '../../kernel/json-exact.ts';
import { CheckError, type CheckHttpClient, type Common, type Subject } from '../check.ts';
import { forwarded } from '../forward-headers.ts';
import { ANY_TARGET, BOTH, check, OUTPUT, url } from './support.ts';

/** Headers sent to a webhook; they win over forwarded ones. */
export const headers = z
  .record(z.string(), z.string())
  .superRefine((given, context) => {
    for (const [name, value] of Object.entries(given)) {
      const message = savedHeaderProblem(name, value);
      if (message !== null) context.addIssue({ code: 'custom', path: [name], message });
    }
  })
  .refine((given) => Object.keys(given).length <= 50, 'must have at most 50 headers')
  .default({});

const joined = (subject: Subject): string => subject.texts.map((part) => part.text).join('\n');

/** What a webhook and a log are sent. */
function told(subject: Subject): string {
  const input = subject.phase === 'input';
  const tools = subject.requestType === 'toolCall';
  return JSON.stringify({
    request: {
      json: subject.request() ?? null,
      text: input ? joined(subject) : '',
      isStreamingRequest: subject.streams,
      isTransformed: input && subject.transformed,
    },
    response: {
      json: subject.answer() ?? null,
      text: input ? '' : joined(subject),
      statusCode: subject.status,
      isTransformed: !input && subject.transformed,
    },
    provider: subject.provider,
    requestType: subject.requestType,
    metadata: subject.metadata,
    eventType: tools ? (input ? 'beforeToolCall' : 'afterToolCall') : input ? 'beforeRequestHook' : 'afterRequestHook',
  });
}

async function send(
  to: string,
  own: Readonly<Record<string, string>>,
  common: Common,
  subject: Subject,
  outside: CheckHttpClient,
) {
  const given = Object.fromEntries(Object.entries(own).map(([name, value]) => [name.toLowerCase(), value]));
  return outside.call({
    url: to,
    method: 'POST',
    headers: { ...forwarded(common.forwardHeaders, subject), 'content-type': 'application/json', ...given },
    body: told(subject),
    maxBytes: outside.most.bytes,
  });
}

/** Data a webhook gives for the record: kept as it is when it is small. */
const MAX_DATA = 16_384;

/**
 * `default.webhook`: another server judges, and may replace the whole request or answer. Anything but 2xx and a
 * JSON object with a boolean `verdict` is an error of the check.
 */
export const webhook = check({
  id: 'default.webhook',
  replacesWhole: true,
  phases: BOTH,
  targets: ANY_TARGET,
  parameters: z.strictObject({ webhookURL: url, headers }),
  timeoutMs: 3_000,
  mutates: true,
  compile: ({ webhookURL, headers: own }, common) => ({
    lookBehind: null,
    async judge(subject, outside) {
      const answer = await send(webhookURL, own, common, subject, outside);
      if (answer.status < 200 || answer.status > 299)
        throw new CheckError(`The webhook answered with ${answer.status}.`);
      let said: unknown;
      try {
        said = parseJson(answer.body.toString('utf8'), outside.most.weight);
      } catch (error) {
        if (error instanceof UnreadJsonError)
          throw new CheckError(
            'The webhook answered with JSON that has more values, or is nested deeper, than is read.',
          );
        throw new CheckError('The webhook did not answer with JSON.');
      }
      if (!isObject(said) || typeof said.verdict !== 'boolean')
        throw new CheckError('The webhook did not answer with a boolean verdict.');
      const data = said.data ?? null;
      const small = JSON.stringify(data).length <= MAX_DATA;
      const side = isObject(said.transformedData)
        ? said.transformedData[subject.phase === 'input' ? 'request' : 'response']
        : undefined;
      const replaced = isObject(side) ? side.json : undefined;
      if (replaced !== undefined && replaced !== null && !isObject(replaced))
        throw new CheckError('The webhook replaced the body by something that is not a JSON object.');
      return {
        verdict: said.verdict,
        data: small
          ? isObject(data)
            ? data
            : data === null
              ? null
              : { data }
          : { explanation: 'Data over 16 KiB is left out.' },
        ...(isObject(replaced) ? { replaced } : null),
      };
    },
  }),
});

/** `default.log`: sends another server what a webhook gets; passes whatever it answers, or whether it answers. */
export const log = check({
  id: 'default.log',
  phases: OUTPUT,
  targets: ANY_TARGET,
  parameters: z.strictObject({ logURL: url, headers }),
  timeoutMs: 5_000,
  mutates: false,
  compile: ({ logURL, headers: own }, common) => ({
    lookBehind: null,
    async judge(subject, outside) {
      let said: string;
      try {
        const { status } = await send(logURL, own, common, subject, outside);
        said = status < 300 ? 'The log took the entry.' : `The log answered with ${status}.`;
      } catch {
        said = 'The log could not be reached.';
      }
      return { verdict: true, data: { explanation: said } };
    },
  }),
});
