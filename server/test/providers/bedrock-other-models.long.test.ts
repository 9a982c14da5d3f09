/** Embeddings, rerank, images and the list of models on Bedrock. */
import { describe, expect, it } from 'vitest';
import { last, NOVA, openai, PIXEL, server, upstream, useBedrock } from '../support/bedrock-runtime.ts';

useBedrock();

describe('embeddings, rerank, images and models', () => {
  it('embeds many texts with Titan, one in each call, in the order they were given', async () => {
    const texts = Array.from({ length: 30 }, (_, i) => `text ${i}`);
    upstream.reply = ({ body }) => ({
      embedding: [Number(String(body.inputText).slice(5)), 0.5],
      inputTextTokenCount: 2,
    });
    const model = 'amazon.titan-embed-text-v2:0';
    const { data, usage } = await openai.embeddings.create({ model, input: texts, dimensions: 256 });
    expect(data.map(({ index, embedding }) => [index, embedding[0]])).toEqual(texts.map((_, i) => [i, i]));
    expect(usage).toEqual({ prompt_tokens: 60, total_tokens: 60 });
    expect(upstream.calls.map(({ body }) => body.inputText).sort()).toEqual([...texts].sort());
    expect(upstream.calls.every(({ body }) => body.dimensions === 256)).toBe(true);
    expect((await server.records())[0]).toMatchObject({ usage: { input: 60 }, attempts: [{ status: 200 }] });
  });

  it('fails as a whole where one of many texts cannot be embedded, and can be tried again', async () => {
    upstream.reply = () => ({ embedding: [1], inputTextTokenCount: 2 });
    const slow = { status: 429, name: 'ThrottlingException', message: 'Too many requests' };
    upstream.failure = ({ body }) => (body.inputText === 'c' ? slow : null);
    const model = 'amazon.titan-embed-text-v2:0';
    const input = ['a', 'b', 'c', 'd'];
    await expect(openai.embeddings.create({ model, input })).rejects.toMatchObject({
      status: 429,
      message: expect.stringContaining('Too many requests'),
    });
    let failures = 0;
    upstream.failure = ({ body }) => (body.inputText === 'c' && failures++ === 0 ? slow : null);
    const again = await openai.embeddings.create({ model, input }, { headers: { 'x-gateway-retry-count': '1' } });
    expect(again.data).toHaveLength(4);
    upstream.failure = null;
    upstream.reply = ({ body }) =>
      body.inputText === 'b' ? { odd: true } : { embedding: [1], inputTextTokenCount: 2 };
    await expect(openai.embeddings.create({ model, input })).rejects.toMatchObject({ status: 502 });
    // The three that could be read have used two tokens each.
    const [record] = await server.records();
    expect(record).toMatchObject({ outcome: 'failed', usage: { input: 6, output: 0 } });
    expect(record?.cost_micros).toBeTypeOf('number');
  });

  it('books what had answered when one of many calls fails, beside the try that succeeds', async () => {
    let answered = 0;
    let tries = 0;
    // The second fails when the others have answered, and answers the next time.
    upstream.reply = ({ body }) => {
      if (body.inputText !== 'b' || ++tries > 1) {
        answered += 1;
        return { embedding: [1], inputTextTokenCount: 2 };
      }
      return new Promise((resolve) => {
        const look = () => (answered < 3 ? setTimeout(look, 5) : setTimeout(() => resolve({ odd: true }), 50));
        look();
      });
    };
    const model = 'amazon.titan-embed-text-v2:0';
    const config = JSON.stringify({ provider: '@aws', retry: { attempts: 1, on_status_codes: [502] } });
    const answer = await server.call(
      '/embeddings',
      { model, input: ['a', 'b', 'c', 'd'] },
      { 'x-gateway-config': config },
    );
    expect([answer.status, await answer.json()]).toMatchObject([200, { usage: { prompt_tokens: 8, total_tokens: 8 } }]);
    expect((await server.records())[0]).toMatchObject({
      outcome: 'ok',
      usage: { input: 14 },
      attempts: [{ cause: { kind: 'invalid_answer' } }, { status: 200 }],
    });
  });

  it('is over in time when one of many calls takes too long, and works the next time', async () => {
    const vector = { embedding: [1], inputTextTokenCount: 2 };
    upstream.reply = ({ body }) => (body.inputText === 'a' ? new Promise(() => undefined) : vector);
    const input = Array.from({ length: 12 }, (_, i) => (i < 4 ? 'a' : 'b'));
    const headers = { 'x-gateway-request-timeout': '300' };
    const body = { model: 'amazon.titan-embed-text-v2:0', input };
    const answer = await server.call('/embeddings', body, { 'x-gateway-provider': '@aws', ...headers });
    expect(answer.status).toBe(408);
    expect(upstream.calls.filter(({ body }) => body.inputText === 'a')).toHaveLength(4);
    upstream.reply = () => vector;
    expect((await openai.embeddings.create(body)).data).toHaveLength(12);
  });

  it('embeds with Titan, one text in a call, as floats or base64', async () => {
    upstream.reply = () => ({ embedding: [0.5, -0.25], inputTextTokenCount: 3 });
    const model = 'amazon.titan-embed-text-v2:0';
    const { data, usage } = await openai.embeddings.create({ model, input: 'hi', dimensions: 256 });
    expect(data[0]?.embedding).toEqual([0.5, -0.25]);
    expect(usage).toEqual({ prompt_tokens: 3, total_tokens: 3 });
    expect(last()).toMatchObject({ call: 'invoke', body: { inputText: 'hi', dimensions: 256 } });
    await openai.embeddings.create({ model, input: ['hi'], encoding_format: 'float' });
    expect(last().body).toEqual({ inputText: 'hi' });
    await expect(
      openai.embeddings.create({ model: 'amazon.titan-embed-text-v1', input: 'a', dimensions: 5 }),
    ).rejects.toMatchObject({ param: 'dimensions' });
    const records = await server.records();
    expect(records.find((one) => one.model_requested === model && one.status === 200)).toMatchObject({
      usage: { input: 3, output: 0 },
    });
  });

  it('embeds with Cohere, several texts at once, counted by the head of the answer', async () => {
    upstream.reply = () => ({ id: 'e', embeddings: { float: [[1], [2]] }, texts: ['a', 'b'], response_type: 'x' });
    upstream.answerHeaders = { 'x-amzn-bedrock-input-token-count': '8' };
    const body = { input: ['a', 'b'], input_type: 'search_query' };
    const four = await openai.embeddings.create({ model: 'eu.cohere.embed-v4:0', dimensions: 512, ...body });
    expect(last().body).toEqual({ texts: ['a', 'b'], input_type: 'search_query', output_dimension: 512 });
    expect(four.data.map(({ embedding, index }) => [index, embedding])).toEqual([
      [0, [1]],
      [1, [2]],
    ]);
    expect(four.usage.prompt_tokens).toBe(8);
    upstream.reply = () => ({ embeddings: [[1]] });
    await openai.embeddings.create({ model: 'cohere.embed-english-v3', input: 'a' });
    expect(last().body).toEqual({ texts: ['a'], input_type: 'search_document' });
  });

  it('embeds pictures with Titan and texts with Nova', async () => {
    upstream.reply = () => ({ embedding: [1], inputTextTokenCount: 2 });
    const image = { text: 'a dot', image: { base64: PIXEL } };
    const headers = { 'x-gateway-provider': '@aws' };
    const titan = { model: 'amazon.titan-embed-image-v1', input: image, dimensions: 384 };
    expect((await server.call('/embeddings', titan, headers)).status).toBe(200);
    expect(last().body).toEqual({
      inputText: 'a dot',
      inputImage: PIXEL,
      embeddingConfig: { outputEmbeddingLength: 384 },
    });
    upstream.reply = () => ({ embeddings: [{ embeddingType: 'TEXT', embedding: [3] }] });
    const nova = { model: 'amazon.nova-2-multimodal-embeddings-v1:0', input: 'a' };
    expect((await openai.embeddings.create(nova)).data[0]?.embedding).toEqual([3]);
  });

  it('reranks with the models of Cohere and Amazon', async () => {
    upstream.reply = () => ({ results: [{ index: 1, relevance_score: 0.9 }] });
    const headers = { 'x-gateway-provider': '@aws' };
    const body = { query: 'q', documents: ['a', { text: 'b', n: 1 }], top_n: 1, return_documents: true };
    const cohere = await server.call('/rerank', { model: 'cohere.rerank-v3-5:0', ...body }, headers);
    expect(last().body).toEqual({ query: 'q', documents: ['a', 'b'], top_n: 1, api_version: 2 });
    expect(await cohere.json()).toMatchObject({
      results: [{ index: 1, relevance_score: 0.9, document: { text: 'b', n: 1 } }],
      model: 'cohere.rerank-v3-5:0',
    });
    await server.call('/rerank', { model: 'amazon.rerank-v1:0', ...body }, headers);
    expect(last().body).toEqual({ query: 'q', documents: ['a', 'b'], top_n: 1 });
  });

  it('makes images with the models of Amazon and Stability', async () => {
    upstream.reply = () => ({ images: [PIXEL, PIXEL], error: null });
    const size = '1024x1024' as const;
    const canvas = { model: 'amazon.nova-canvas-v1:0', prompt: 'a dot', n: 2, size, quality: 'hd' as const };
    const made = await openai.images.generate(canvas);
    expect(made.data?.map(({ b64_json }) => b64_json)).toEqual([PIXEL, PIXEL]);
    expect(last().body).toEqual({
      taskType: 'TEXT_IMAGE',
      textToImageParams: { text: 'a dot' },
      imageGenerationConfig: { numberOfImages: 2, width: 1024, height: 1024, quality: 'premium' },
    });
    upstream.reply = () => ({ seeds: [1], finish_reasons: [null], images: [PIXEL] });
    await openai.images.generate({ model: 'stability.stable-image-core-v1:1', prompt: 'a dot', size: '1792x1024' });
    expect(last().body).toEqual({ prompt: 'a dot', aspect_ratio: '16:9' });
    await expect(
      openai.images.generate({ model: 'amazon.nova-canvas-v1:0', prompt: 'a', response_format: 'url' }),
    ).rejects.toMatchObject({ status: 400, param: 'response_format' });
    upstream.reply = () => ({ error: 'This request has been blocked by our content filters.' });
    await expect(openai.images.generate(canvas)).rejects.toMatchObject({ status: 502 });
  });

  it('lists the models and the inference profiles of the region, those the account may see, and tells of one', async () => {
    const summary = {
      modelArn: 'arn:aws:bedrock:eu-central-1::foundation-model/amazon.nova-pro-v1:0',
      modelId: 'amazon.nova-pro-v1:0',
      modelName: 'Nova Pro',
      providerName: 'Amazon',
      inferenceTypesSupported: ['INFERENCE_PROFILE'],
    };
    const system = { inferenceProfileId: NOVA, inferenceProfileName: 'EU Nova Pro', type: 'SYSTEM_DEFINED' };
    const arn = 'arn:aws:bedrock:eu-central-1:123456789012:application-inference-profile/abc123';
    const own = { inferenceProfileId: 'abc123', inferenceProfileArn: arn, type: 'APPLICATION' };
    upstream.reply = ({ call }) => {
      if (call === '/foundation-models') return { modelSummaries: [summary] };
      if (call.startsWith('/foundation-models/')) return { modelDetails: summary };
      if (call.endsWith('type=SYSTEM_DEFINED')) return { inferenceProfileSummaries: [system] };
      if (call.endsWith('type=APPLICATION')) return { inferenceProfileSummaries: [own], nextToken: 'more' };
      return { inferenceProfileId: NOVA, inferenceProfileName: 'EU Nova Pro', type: 'SYSTEM_DEFINED' };
    };
    const list = await openai.models.list();
    expect(list.data).toMatchObject([
      { id: 'amazon.nova-pro-v1:0', object: 'model', owned_by: 'Amazon' },
      { id: NOVA, object: 'model', owned_by: 'amazon' },
      { id: arn, object: 'model', owned_by: 'account' },
    ]);
    expect(list).toMatchObject({ body: { has_more: true } });
    const denied = { status: 403, name: 'AccessDeniedException', message: 'not allowed' };
    upstream.failure = ({ call }) => (call.startsWith('/inference-profiles') ? denied : null);
    const allowed = await openai.models.list();
    expect(allowed.data.map(({ id }) => id)).toEqual(['amazon.nova-pro-v1:0']);
    upstream.failure = ({ call }) => (call === '/foundation-models' ? denied : null);
    await expect(openai.models.list()).rejects.toMatchObject({ status: 403 });
    upstream.failure = ({ call }) => (call.includes('APPLICATION') ? { ...denied, status: 500 } : null);
    await expect(openai.models.list({ maxRetries: 0 })).rejects.toMatchObject({ status: 500 });
    upstream.failure = null;
    expect(await openai.models.retrieve('amazon.nova-pro-v1:0')).toMatchObject({ id: 'amazon.nova-pro-v1:0' });
    expect(await openai.models.retrieve(NOVA)).toMatchObject({ id: NOVA, inferenceProfileName: 'EU Nova Pro' });
    expect(last().call).toBe('/inference-profiles/eu.amazon.nova-pro-v1%3A0');
  });
});
