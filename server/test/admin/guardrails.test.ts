/** Guardrails as a resource: what a body may say, and what is answered. On both stores. */
import { describe, expect, it } from 'vitest';
import { ok, onBothStores, refused } from '../support/accounts.ts';
import { CONTAINS, guardrailCalls } from '../support/guardrail-calls.ts';
import { actionsWith } from '../support/guardrails.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const DEFAULTS = {
  deny: false,
  async: false,
  on_success: { feedback: { value: 5, weight: 1, metadata: '' } },
  on_fail: { feedback: { value: -5, weight: 1, metadata: '' } },
  sequential: false,
  soft_deny_200: false,
  on_error: 'allow',
  messages: 'all',
  stream: 'incremental',
  log_content: 'withheld',
};

onBothStores((on) => {
  const { inWorkspace, make, read } = guardrailCalls(on);

  describe('creating a guardrail', () => {
    it('answers id, slug, version, time and maker, and nothing else', async () => {
      const made = await make(inWorkspace({ name: 'Card numbers' }));
      expect(made).toEqual({
        id: expect.stringMatching(UUID),
        slug: expect.stringMatching(/^pg-card-numbers-[0-9a-f]{6}$/),
        version_id: expect.stringMatching(UUID),
        created_at: expect.stringMatching(TIME),
        created_by: expect.stringMatching(UUID),
      });
      expect(await read(made.id)).toMatchObject({ created_by: made.created_by, owner_id: made.created_by });
    });

    it('is read back with every default written out', async () => {
      const made = await make(inWorkspace({ name: 'Plain' }));
      const stored = await read(made.id);
      expect(stored).toEqual({
        id: made.id,
        name: 'Plain',
        slug: made.slug,
        organisation_id: on.api.a.organisation_id,
        workspace_id: on.api.a.workspace_id,
        target: 'llm',
        status: 'active',
        owner_id: made.created_by,
        created_by: made.created_by,
        updated_by: null,
        created_at: made.created_at,
        last_updated_at: made.created_at,
        object: 'guardrail',
        checks: [{ ...CONTAINS, is_enabled: true }],
        actions: DEFAULTS,
        version_id: made.version_id,
      });
    });

    it('keeps every action as it was sent, and fails closed on errors where it denies', async () => {
      const actions = {
        deny: true,
        async: true,
        on_success: { feedback: { value: 10, weight: 0, metadata: '{"team":"é"}' } },
        on_fail: { feedback: { value: -10, weight: 0.5, metadata: '' } },
        sequential: true,
        soft_deny_200: true,
        on_error: 'allow',
        messages: 'new',
        stream: 'buffer',
        log_content: 'as_sent',
      };
      const { id } = await make(inWorkspace({ actions }));
      expect((await read(id)).actions).toEqual(actions);
      const denies = await make(inWorkspace({ actions: actionsWith({ deny: true }) }));
      expect((await read(denies.id)).actions).toEqual({ ...DEFAULTS, deny: true, on_error: 'deny' });
      const partly = await make(inWorkspace({ actions: actionsWith({ on_fail: { feedback: { value: -1 } } }) }));
      expect((await read(partly.id)).actions.on_fail).toEqual({ feedback: { value: -1, weight: 1, metadata: '' } });
    });

    it('gives actions that are not required their defaults, and in an update leaves them as they were', async () => {
      const { id } = await make(inWorkspace({ actions: actionsWith({ sequential: true }) }));
      expect((await read(id)).actions).toEqual({ ...DEFAULTS, sequential: true });
      const patched = await on.put(`/guardrails/${id}`, { actions: actionsWith({ messages: 'new' }) });
      expect(patched.status).toBe(200);
      expect((await read(id)).actions).toEqual({ ...DEFAULTS, sequential: true, messages: 'new' });
      const unsent = await make(inWorkspace({}));
      expect((await read(unsent.id)).actions).toEqual(DEFAULTS);
    });

    it.each([
      ['Zensur für Ärzte', /^pg-/],
      ['安全策略', /^pg-/],
      ['🛡️', /^pg-/],
      ['x'.repeat(255), /^pg-x+/],
      ['😀'.repeat(255), /^pg-/],
      ['constructor', /^pg-constructor-/],
      ['__proto__', /^pg-/],
      ['" OR 1=1 --', /^pg-/],
    ])('takes the name %s as it is', async (name, slug) => {
      const made = await make(inWorkspace({ name }));
      expect(made.slug).toMatch(slug);
      expect(made.slug).toMatch(/^[a-zA-Z0-9_-]{4,255}$/);
      expect(await read(made.slug)).toMatchObject({ id: made.id, name });
    });

    it('two of one name have slugs of their own', async () => {
      const [one, two] = [await make(inWorkspace({ name: 'Twin' })), await make(inWorkspace({ name: 'Twin' }))];
      expect(one.slug).not.toBe(two.slug);
    });

    it('keeps a disabled check, its label and parameters in unicode', async () => {
      const checks = [
        { id: 'default.regexMatch', name: 'nüm 😀', is_enabled: false, parameters: { rule: '\\p{L}+😀', not: true } },
        { id: 'default.contains', is_enabled: true, parameters: { words: ['ß', '禁止'], operator: 'none' } },
      ];
      const { id } = await make(inWorkspace({ checks }));
      expect((await read(id)).checks).toEqual(checks);
    });

    it('for tool calls takes the checks that can judge them, and shows its servers', async () => {
      const { id } = await make(inWorkspace({ target: 'mcp_tools' }));
      expect(await read(id)).toMatchObject({ target: 'mcp_tools', mcp_server_mappings: [] });
      for (const check of [
        { id: 'default.modelWhitelist', parameters: { models: ['gpt-5'] } },
        { id: 'default.addPrefix', parameters: { prefix: 'x' } },
        { id: 'default.inlineImageUrls' },
      ]) {
        refused(
          await on.post('/guardrails', inWorkspace({ target: 'mcp_tools', checks: [CONTAINS, check] })),
          400,
          'AB01',
          'checks[1].id',
        );
      }
    });

    it.each<[string, object, string | null]>([
      ['no name', { name: undefined }, 'name'],
      ['an empty name', { name: '' }, 'name'],
      ['a name of 256 characters', { name: 'x'.repeat(256) }, 'name'],
      ['a name of null', { name: null }, 'name'],
      ['a number as name', { name: 7 }, 'name'],
      ['half a character as name', { name: '\ud800' }, 'name'],
      ['a null character in the name', { name: 'a\u0000' }, 'name'],
      ['a status', { status: 'active' }, 'status'],
      ['a slug', { slug: 'pg-mine' }, 'slug'],
      ['an unknown field', { constructor: 1 }, 'constructor'],
      ['an unknown target', { target: 'agents' }, 'target'],
      ['a target of null', { target: null }, 'target'],
      ['a target that an object inherits', { target: 'toString' }, 'target'],
      ['no checks', { checks: undefined }, 'checks'],
      ['an empty list of checks', { checks: [] }, 'checks'],
      ['checks of null', { checks: null }, 'checks'],
      ['checks by name', { checks: { 'default.contains': {} } }, 'checks'],
      ['101 checks', { checks: Array.from({ length: 101 }, () => CONTAINS) }, 'checks'],
      ['a check of text', { checks: ['default.contains'] }, 'checks[0]'],
      ['a check without id', { checks: [{ parameters: {} }] }, 'checks[0].id'],
      ['an unknown check', { checks: [CONTAINS, { id: 'default.nope' }] }, 'checks[1].id'],
      ['a check of an unknown partner', { checks: [{ id: 'nobody.judge' }] }, 'checks[0].id'],
      ['a check that an object inherits', { checks: [{ id: 'constructor' }] }, 'checks[0].id'],
      ['an unknown field of a check', { checks: [{ ...CONTAINS, enabled: true }] }, 'checks[0].enabled'],
      ['is_enabled as text', { checks: [{ ...CONTAINS, is_enabled: 'false' }] }, 'checks[0].is_enabled'],
      ['parameters of null', { checks: [{ ...CONTAINS, parameters: null }] }, 'checks[0].parameters'],
      ['parameters as a list', { checks: [{ ...CONTAINS, parameters: [] }] }, 'checks[0].parameters'],
      ['no words', { checks: [{ id: 'default.contains' }] }, 'checks[0].parameters.words'],
      [
        'an unknown parameter',
        { checks: [{ id: 'default.contains', parameters: { words: ['a'], word: 'a' } }] },
        'checks[0].parameters.word',
      ],
      [
        'a parameter that an object inherits',
        { checks: [{ id: 'default.contains', parameters: { words: ['a'], toString: 1 } }] },
        'checks[0].parameters.toString',
      ],
      [
        'a pattern that is none',
        { checks: [CONTAINS, { id: 'default.regexMatch', parameters: { rule: '(' } }] },
        'checks[1].parameters.rule',
      ],
      [
        'a timeout of 0',
        { checks: [{ id: 'default.contains', parameters: { words: ['a'], timeout: 0 } }] },
        'checks[0].parameters.timeout',
      ],
      [
        'a webhook of another scheme',
        { checks: [{ id: 'default.webhook', parameters: { webhookURL: 'file:///etc/passwd' } }] },
        'checks[0].parameters.webhookURL',
      ],
      ['actions of null', { actions: null }, 'actions'],
      ['actions without deny', { actions: { async: false, on_success: {}, on_fail: {} } }, 'actions.deny'],
      ['actions without async', { actions: { deny: true, on_success: {}, on_fail: {} } }, 'actions.async'],
      ['actions without on_success', { actions: { deny: true, async: false, on_fail: {} } }, 'actions.on_success'],
      ['actions without on_fail', { actions: { deny: true, async: false, on_success: {} } }, 'actions.on_fail'],
      ['an unknown action', { actions: actionsWith({ deny: true, block: true }) }, 'actions.block'],
      ['deny as text', { actions: actionsWith({ deny: 'true' }) }, 'actions.deny'],
      ['async as number', { actions: actionsWith({ async: 1 }) }, 'actions.async'],
      [
        'a feedback of text',
        { actions: actionsWith({ on_fail: { feedback: { value: 'bad' } } }) },
        'actions.on_fail.feedback.value',
      ],
      [
        'a feedback of 11',
        { actions: actionsWith({ on_fail: { feedback: { value: 11 } } }) },
        'actions.on_fail.feedback.value',
      ],
      [
        'a weight of 2',
        { actions: actionsWith({ on_success: { feedback: { weight: 2 } } }) },
        'actions.on_success.feedback.weight',
      ],
      [
        'feedback metadata as object',
        { actions: actionsWith({ on_success: { feedback: { metadata: {} } } }) },
        'actions.on_success.feedback.metadata',
      ],
      ['an outcome of its own', { actions: actionsWith({ on_fail: { retry: true } }) }, 'actions.on_fail.retry'],
      ['an unknown on_error', { actions: actionsWith({ on_error: 'ignore' }) }, 'actions.on_error'],
      ['unknown messages', { actions: actionsWith({ messages: 'first' }) }, 'actions.messages'],
      ['an unknown way of streams', { actions: actionsWith({ stream: 'none' }) }, 'actions.stream'],
      ['no owner', { workspace_id: undefined }, 'workspace_id'],
    ])(
      '%s is refused with its path, on create and, where it can stand there, on update',
      async (_title, more, param) => {
        refused(await on.post('/guardrails', inWorkspace(more)), 400, 'AB01', param);
        const [[field, value] = ['', undefined]] = Object.entries(more);
        if (value === undefined || field === 'target') return;
        const { id } = await make();
        refused(await on.put(`/guardrails/${id}`, { [field]: value }), 400, 'AB01', param);
        expect((await read(id)).version_id).toBe(ok(await on.get(`/guardrails/${id}`)).version_id);
      },
    );

    it.each([
      'authorization',
      'x-api-key',
      'ocp-apim-subscription-key',
      'proxy-authorization',
      'cookie',
      'metadata-flavor',
      'x-aws-ec2-metadata-token',
      'x-google-metadata-request',
      'x-gateway-api-key',
      'x-gateway-config',
      'connection',
      'host',
      'transfer-encoding',
      'keep-alive',
      'te',
      'trailer',
      'upgrade',
      'proxy-authenticate',
      'content-length',
      'X-Trace',
      'x-*',
      'x trace',
      '',
      'ключ',
    ])('forwarding the header "%s" is refused on create and on update, and what stood before stays', async (name) => {
      const check = (forwardHeaders: string[]) => ({
        id: 'default.webhook',
        parameters: { webhookURL: 'https://hook.example/', forwardHeaders },
      });
      const param = 'checks[1].parameters.forwardHeaders[1]';
      const wrong = [CONTAINS, check(['x-team', name])];
      refused(await on.post('/guardrails', inWorkspace({ checks: wrong })), 400, 'AB01', param);
      const { id, version_id } = await make(
        inWorkspace({ checks: [check(['x-team', 'traceparent', 'x-gateway-trace-id', 'x-gateway-span-id'])] }),
      );
      refused(await on.put(`/guardrails/${id}`, { checks: wrong }), 400, 'AB01', param);
      expect((await read(id)).version_id).toBe(version_id);
    });

    it('forwards at most 16 headers to a check', async () => {
      const check = (count: number) => ({
        id: 'default.webhook',
        parameters: {
          webhookURL: 'https://hook.example/',
          forwardHeaders: Array.from({ length: count }, (_, i) => `x-team-${i}`),
        },
      });
      const { id } = await make(inWorkspace({ checks: [check(16)] }));
      const param = 'checks[0].parameters.forwardHeaders';
      refused(await on.post('/guardrails', inWorkspace({ checks: [check(17)] })), 400, 'AB01', param);
      refused(await on.put(`/guardrails/${id}`, { checks: [check(17)] }), 400, 'AB01', param);
    });

    it('says which known check an unknown one was meant to be', async () => {
      const answer = await on.post('/guardrails', inWorkspace({ checks: [{ id: 'default.containz' }] }));
      expect(answer.body.error.message).toContain('default.contains');
    });
  });
});
