import fc from 'fast-check';
import { expect, it } from 'vitest';
import { onBothStores } from '../../test/support/accounts.ts';

onBothStores((on) => {
  it('no body whatever gives a 5xx', async () => {
    const paths = ['/configs', '/integrations', '/providers', '/virtual-keys'];
    const field = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.constantFrom<unknown>(
        'openai',
        'bedrock',
        'sandbox',
        {},
        [],
        null,

        -0,
        '\ud800',
        'a\u0000b',
        '*******00000000',
      ),
    );
    const names = [
      'name',
      'config',
      'ai_provider_id',
      'key',
      'configurations',
      'integration_id',
      'provider',
      'slug',
      'tags',
      'usage_limits',
      'rate_limits',
      'secret_mappings',
      'expires_at',
      'awsRegion',
      'pricing_adjustments',
      'workspace_id',
    ];
    const body = fc.dictionary(fc.constantFrom(...names), field, { maxKeys: 8 });
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...paths), body, async (path, content) => {
        const answer = await on.post(path, content, on.mine);
        expect(answer.status, answer.text).toBeLessThan(500);
      }),
      { numRuns: 300 },
    );
  }, 120_000);
});
