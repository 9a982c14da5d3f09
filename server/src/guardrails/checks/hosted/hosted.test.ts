import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { problems, type SubjectParts, subjectOf } from '../../../../test/support/guardrails.ts';
import { assertionFault, CASES, type Case, FOUND, TEXT, TOKEN_URL } from '../../../../test/support/hosted-cases.ts';
import { type HostedService, judgedBy, type Said, startHosted } from '../../../../test/support/hosted-service.ts';
import { atOnce } from '../../../kernel/turns.ts';
import { compileCheck, readChecks } from '../../catalog.ts';
import { CheckError } from '../../check.ts';
import { CHECKS } from '../index.ts';

let service: HostedService;
let stopped: AbortController;
beforeEach(async () => {
  stopped = new AbortController();
  service = await startHosted(stopped.signal);
});
afterEach(async () => {
  await service.stop();
});

type Phase = 'input' | 'output';

/** A service that gives a token to whoever asks for one, and `said` to every other call. */
const answers =
  (said: Said): Said =>
  (body, call, request) =>
    request.headers.host === new URL(TOKEN_URL).host
      ? { body: { access_token: 'google-token', expires_in: 3_600, token_type: 'Bearer' } }
      : said(body, call, request);

const subject = (phase: Phase, text = TEXT): SubjectParts => ({
  phase,
  texts: [{ path: 'here', role: 'user', text }],
  request: { messages: [{ role: 'user', content: 'What is my card?' }] },
});

const judge = (given: Case, phase: Phase, redact = false) => {
  service.operations = given.operations(phase, TEXT, redact);
  return judgedBy(service, given.id, redact ? { ...given.parameters, redact } : given.parameters, subject(phase));
};

const both = CASES.flatMap((given) => given.phases.map((phase) => [given.id, phase, given] as const));
const redacting = CASES.flatMap(({ redacted, ...given }) =>
  redacted === undefined
    ? []
    : (redacted.phases ?? given.phases).map((phase) => [given.id, phase, given, redacted] as const),
);

describe('a hosted check asks as its service publishes it', () => {
  it.each(both)('%s lets what is clear pass (%s)', async (_, phase, given) => {
    service.says = answers(() => ({ body: given.clear }));
    const judgement = await judge(given, phase);
    expect(service.faults).toEqual([]);
    expect(judgement.verdict).toBe(true);
    expect(judgement.replacements).toBeUndefined();
  });

  it.each(both)('%s fails on what the service finds and names it, without its words (%s)', async (_, phase, given) => {
    service.says = answers(() => ({ body: given.found }));
    const judgement = await judge(given, phase);
    expect(service.faults).toEqual([]);
    expect(judgement.verdict).toBe(false);
    expect(judgement.data?.found).toEqual(given.names);
    expect(JSON.stringify(judgement)).not.toContain(FOUND);
    expect(JSON.stringify(judgement)).not.toContain(given.key);
  });

  it.each(redacting)('%s redacts and passes (%s)', async (_, phase, given, redacted) => {
    service.says = answers(() => ({ body: redacted.answer }));
    const judgement = await judge(given as Case, phase, true);
    expect(service.faults).toEqual([]);
    expect(judgement.verdict).toBe(true);
    expect(judgement.replacements).toEqual([{ path: 'here', text: redacted.text }]);
    expect(JSON.stringify(judgement)).not.toContain(FOUND);
  });

  it.each(redacting)('%s fails on the same where it may not redact (%s)', async (_, phase, given, redacted) => {
    service.says = answers(() => ({ body: redacted.answer }));
    const judgement = await judge(given as Case, phase);
    expect(judgement.verdict).toBe(false);
    expect(judgement.replacements).toBeUndefined();
    expect(JSON.stringify(judgement)).not.toContain(FOUND);
  });

  it.each(redacting.filter(([id]) => !['azure.pii', 'presidio.analyze'].includes(id)))(
    '%s fails on what cannot be redacted although it may (%s)',
    async (_, phase, given) => {
      service.says = answers(() => ({ body: given.found }));
      const judgement = await judge(given as Case, phase, true);
      expect(service.faults).toEqual([]);
      expect(judgement.verdict).toBe(false);
      expect(judgement.replacements).toBeUndefined();
    },
  );
});

describe('a service that does not judge is an error of the check', () => {
  const error = async (given: Case): Promise<Error> =>
    judge(given, given.phases[0] ?? 'input').then(
      () => new Error('judged'),
      (reason: Error) => reason,
    );

  it.each(CASES.map((given) => [given.id, given] as const))('%s: 401, 429, 500 and a redirect', async (_, given) => {
    for (const [status, message] of [
      [401, 'refused the credentials (401)'],
      [403, 'refused the credentials (403)'],
      [429, 'is asked more than its limits allow (429)'],
      [500, 'answered with 500'],
      [302, 'answered with 302'],
    ] as const) {
      service.says = answers(() => ({ status, body: { error: { message: `${TEXT} ${given.key}` } } }));
      const reason = await error(given);
      expect(reason).toBeInstanceOf(CheckError);
      expect(reason.message).toContain(message);
      expect(reason.message).not.toContain(FOUND);
      expect(reason.message).not.toContain(given.key);
    }
    expect(service.faults).toEqual([]);
  });

  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s: what is no JSON, or JSON of another form',
    async (_, given) => {
      for (const body of [
        '',
        '{',
        `"${FOUND}"`,
        'null',
        '{}',
        '[]',
        '{"error":true}',
        '[{}]',
        '{"results":[]}',
        '{"result":null}',
      ]) {
        if (body === '[]' && given.id === 'presidio.analyze') continue;
        service.says = answers(() => ({ body }));
        const reason = await error(given);
        expect(reason, body).toBeInstanceOf(CheckError);
        expect(reason.message).not.toContain(FOUND);
      }
    },
  );

  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s: an answer without end, and one that does not come',
    async (_, given) => {
      service.says = answers(() => ({ body: JSON.stringify({ a: 'x'.repeat(5 * 1024 * 1024) }) }));
      expect((await error(given)).message).toBe('The answer is too long.');
      service.says = answers(() => {
        setImmediate(() => stopped.abort(new Error('time is over')));
        return { hang: true };
      });
      expect((await error(given)).message).toBe('time is over');
    },
  );

  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s: any answer at all is a judgement or a told error',
    async (_, given) => {
      let said: unknown = null;
      service.says = answers(() => ({ body: JSON.stringify(said) }));
      const leaves = fc.oneof(
        fc.boolean(),
        fc.integer(),
        fc.constantFrom(FOUND, 'block', 'MATCH_FOUND', 'BLOCKED', 'Success'),
        fc.constant(null),
      );
      const shaken = (value: unknown, at: number, leaf: unknown): unknown => {
        let n = 0;
        return JSON.parse(JSON.stringify(value), (_key, one) => (n++ === at ? leaf : one));
      };
      await fc.assert(
        fc.asyncProperty(fc.constantFrom(given.clear, given.found), fc.nat(24), leaves, async (base, at, leaf) => {
          said = shaken(base, at, leaf);
          const phase = given.phases[0] ?? 'input';
          const outcome = await judge(given, phase).catch((reason: unknown) => reason);
          if (outcome instanceof Error) {
            expect(outcome).toBeInstanceOf(CheckError);
            expect(outcome.message).not.toContain(FOUND);
          } else expect(JSON.stringify(outcome)).not.toContain(FOUND);
        }),
        { numRuns: 60 },
      );
    },
  );
});

describe('texts of any length and number', () => {
  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s fails on a text that needs too many calls, without calling',
    async (_, given) => {
      const judgement = await judgedBy(
        service,
        given.id,
        given.parameters,
        subject(given.phases[0] ?? 'input', 'word '.repeat(2_000_000)),
      );
      expect(judgement.verdict).toBe(false);
      expect(judgement.data?.explanation).toMatch(/^The text is longer than .+ can be asked about in 40 calls\.$/);
      expect(service.bodies).toEqual([]);
    },
  );

  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s does not call for texts of white space',
    async (_, given) => {
      const judgement = await judgedBy(service, given.id, given.parameters, subject(given.phases[0] ?? 'input', ' \n'));
      expect(judgement.verdict).toBe(true);
      expect(service.bodies).toEqual([]);
    },
  );
});

describe('a hosted check as it is saved', () => {
  it('the published ids are known', () => {
    for (const id of [
      'gateway.moderateContent',
      'aporia.validateProject',
      'mistral.moderateContent',
      'bedrock.guard',
      'azure.contentSafety',
      'azure.pii',
    ])
      expect(CHECKS.has(id), id).toBe(true);
    expect(problems('gateway.moderatecontent', {})[0]).toContain('did you mean gateway.moderateContent?');
  });

  it.each(CASES.map((given) => [given.id, given] as const))(
    '%s: accepted as documented, refused for MCP tools',
    (id, given) => {
      expect(
        problems(id, { ...given.parameters, timeout: 2_000, failOnError: true, forwardHeaders: ['x-team'] }),
      ).toEqual([]);
      expect(problems(id, given.parameters, 'mcp_tools')).toEqual([
        '[0].id: cannot be used in a guardrail with target mcp_tools',
      ]);
      const compiled = compileCheck({ id, is_enabled: true, parameters: given.parameters }, 'llm');
      expect(compiled?.common.timeoutMs).toBe(5_000);
      expect(compiled?.judge.lookBehind).toBeNull();
      expect(compiled?.phases).toEqual(given.phases);
    },
  );

  it.each(CASES.map((given) => [given.id, given] as const))('%s: unknown and missing fields are named', (id, given) => {
    expect(problems(id, { ...given.parameters, colour: 1 }).map((line) => line.split(':')[0])).toEqual([
      '[0].parameters.colour',
    ]);
    const keys = given.parameters.credentials as Record<string, unknown> | undefined;
    if (keys === undefined) return;
    const { credentials: _, ...without } = given.parameters;
    expect(problems(id, without)[0]).toMatch(
      /^\[0\]\.parameters\.credentials: is required, with your own access to the service: /,
    );
    for (const name of Object.keys(keys).filter((one) => one !== 'domain'))
      expect(problems(id, { ...without, credentials: { ...keys, [name]: undefined } })[0]).toContain(
        `credentials.${name}: `,
      );
    expect(problems(id, { ...without, credentials: { ...keys, colour: 1 } })[0]).toContain(
      'parameters.credentials.colour: ',
    );
    for (const [name, value] of [
      ['endpoint', 'file:///etc/passwd'],
      ['endpoint', 'https://a:b@c.example'],
      ['endpoint', 'x'],
    ])
      expect(problems(id, { ...without, credentials: { ...keys, [name ?? '']: value } })[0]).toContain(
        'parameters.credentials.endpoint: ',
      );
    for (const name of ['apiKey', 'token', 'secretAccessKey'].filter((one) => one in keys))
      expect(problems(id, { ...without, credentials: { ...keys, [name]: 'a\r\nb: c' } })[0]).toContain(
        `credentials.${name}: must be a key`,
      );
    // As they are shown, credentials may be sent back.
    const masked = Object.fromEntries(Object.keys(keys).map((name) => [name, '*******0123abcd']));
    expect(problems(id, { ...without, credentials: masked })).toEqual([]);
  });

  it('what makes up an address cannot lead away from the service', () => {
    const bad = [
      'evil.example',
      'aws.us.pangea.cloud.evil.example',
      'x/y.pangea.cloud',
      'pangea.cloud',
      'a@b.pangea.cloud',
    ];
    for (const domain of bad)
      expect(problems('pangea.textGuard', { credentials: { token: 'k', domain } })[0]).toContain('must be a domain');
    const keys = { accessKeyId: 'a', secretAccessKey: 'b' };
    for (const region of ['evil.example', 'us-east-1.evil.example/', 'us-east-1@x', ''])
      expect(
        problems('bedrock.guard', { guardrailId: 'a', guardrailVersion: '1', credentials: { ...keys, region } })[0],
      ).toContain('must be a region');
    const armor = CASES.find(({ id }) => id === 'google.modelArmor')?.parameters;
    for (const location of ['evil.example/', 'us-central1.evil', 'us/central', ''])
      expect(problems('google.modelArmor', { ...armor, location })[0]).toContain('must be a location');
    for (const projectID of ['a/b', '..', 'a?b', 'a#b'])
      expect(problems('aporia.validateProject', { projectID, credentials: { apiKey: 'k' } })[0]).toContain(
        'must be the id',
      );
  });

  it('any parameters are accepted or refused with their path, and what is accepted compiles', () => {
    const json = fc.jsonValue({ maxDepth: 3 });
    fc.assert(
      fc.property(
        fc.constantFrom(...CASES),
        fc.string(),
        json,
        json,
        fc.constantFrom('parameters', 'credentials'),
        (given, name, odd, other, where) => {
          const credentials = (given.parameters.credentials ?? {}) as Record<string, unknown>;
          const own = Object.keys(where === 'credentials' ? credentials : given.parameters);
          for (const key of [name, ...own]) {
            const sent =
              where === 'parameters'
                ? { ...given.parameters, [key]: odd }
                : { ...given.parameters, credentials: { ...credentials, [key]: other } };
            const parsed = atOnce(readChecks('llm', [{ id: given.id, parameters: sent }]));
            const compiled = compileCheck({ id: given.id, is_enabled: true, parameters: sent }, 'llm');
            expect(compiled !== null).toBe(parsed.success);
            if (!parsed.success)
              for (const { path } of parsed.error.issues) expect(path.slice(0, 2)).toEqual([0, 'parameters']);
          }
        },
      ),
      { numRuns: 200 },
    );
  });
});

describe('Google', () => {
  const armor = CASES.find(({ id }) => id === 'google.modelArmor') as Case;

  it('a token is asked for with a signed assertion at Google itself, and used until shortly before it ends', async () => {
    const forms: string[] = [];
    service.operations = armor.operations('input', TEXT, false);
    service.says = (body, _, { headers }) => {
      if (headers.host !== 'oauth2.googleapis.com') return { body: armor.clear };
      forms.push(String(body));
      return { body: { access_token: 'google-token', expires_in: 3_600 } };
    };
    const compiled = compileCheck({ id: armor.id, is_enabled: true, parameters: armor.parameters }, 'llm');
    const ask = async () => compiled?.judge.judge(subjectOf(subject('input')), service.outside);
    await Promise.all([ask(), ask(), ask()]);
    expect(forms).toHaveLength(1);
    expect(await assertionFault(forms[0] ?? '', service.now)).toBeNull();
    service.now += 54 * 60_000;
    await ask();
    expect(forms).toHaveLength(1);
    service.now += 2 * 60_000;
    await ask();
    expect(forms).toHaveLength(2);
    expect(service.faults).toEqual([]);
  });

  it('a refused exchange is an error and is not remembered', async () => {
    service.operations = armor.operations('input', TEXT, false);
    let refuse = true;
    service.says = (_, __, { headers }) =>
      headers.host === 'oauth2.googleapis.com'
        ? refuse
          ? { status: 400, body: { error: 'invalid_grant' } }
          : { body: { access_token: 'google-token', expires_in: 3_600 } }
        : { body: armor.clear };
    await expect(judge(armor, 'input')).rejects.toThrow('Google refused the service account (400).');
    refuse = false;
    expect((await judge(armor, 'input')).verdict).toBe(true);
  });

  it('filters that were not carried out are an error, unless another one matched', async () => {
    const { sanitizationResult } = armor.clear as { sanitizationResult: Record<string, unknown> };
    service.says = answers(() => ({
      body: { sanitizationResult: { ...sanitizationResult, invocationResult: 'PARTIAL' } },
    }));
    await expect(judge(armor, 'input')).rejects.toThrow('did not carry out all filters');
    const hit = (armor.found as { sanitizationResult: object }).sanitizationResult;
    service.says = answers(() => ({ body: { sanitizationResult: { ...hit, invocationResult: 'PARTIAL' } } }));
    expect((await judge(armor, 'input')).verdict).toBe(false);
  });

  it('a key file may be sent as text; one that is no key file is refused', () => {
    const { serviceAccount } = armor.parameters.credentials as { serviceAccount: object };
    const withFile = (file: unknown) =>
      problems(armor.id, { ...armor.parameters, credentials: { serviceAccount: file } });
    expect(withFile(JSON.stringify(serviceAccount))).toEqual([]);
    for (const file of ['{', '{}', {}, 1, { ...serviceAccount, type: 'user' }])
      expect(withFile(file)[0]).toContain('must be the key file of a service account');
  });
});
