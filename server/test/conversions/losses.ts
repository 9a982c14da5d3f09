/** What conversions give up on purpose. Everything else is carried, or refused by its name. The guide shows this list. */
export interface Loss {
  /** Caller's or provider's shape it comes from, and the one that cannot hold it. */
  readonly from: string;
  readonly to: string;
  readonly what: string;
  readonly why: string;
}

export const LOSSES: readonly Loss[] = [
  {
    from: 'chat',
    to: 'messages, gemini, converse',
    what: 'the place of `system` and `developer` messages, and which of the two they were',
    why: 'instructions are separate there, all of them, in their order',
  },
  { from: 'chat', to: 'messages, gemini, converse', what: '`name` of a message', why: 'messages have no name there' },
  {
    from: 'chat, responses',
    to: 'messages, gemini, converse',
    what: '`detail` of a picture',
    why: 'it changes how many tokens a picture costs; that format has no such choice',
  },
  {
    from: 'chat',
    to: 'messages, gemini',
    what: '`name`, `description` and `strict` of a `json_schema`',
    why: 'a schema has no name there and is always enforced',
  },
  {
    from: 'chat',
    to: 'messages, gemini, converse',
    what: 'the mark that an assistant refused (`refusal`)',
    why: 'the refusal becomes text of the assistant; an answer that refuses has the reason `refusal`',
  },
  {
    from: 'chat',
    to: 'messages, converse',
    what: '`reasoning_content` of earlier turns without its signature',
    why: 'Sluice cannot make a signature; `content_blocks` carry both',
  },
  {
    from: 'messages',
    to: 'chat, gemini, converse, responses',
    what: 'signatures of `thinking` and `redacted_thinking` of another model',
    why: 'only the model that made them can read them; the text goes where the provider wants it back',
  },
  {
    from: 'messages',
    to: 'chat, gemini, converse, responses',
    what: 'the borders between texts of `system`, of an assistant and of a result',
    why: 'they become one text; an empty line or a line end separates former blocks of instructions or results',
  },
  {
    from: 'messages',
    to: 'chat, gemini, converse, responses',
    what: '`is_error` of a result',
    why: 'results have no such mark there; their text begins with `Error: `',
  },
  {
    from: 'messages, responses',
    to: 'chat, gemini, converse',
    what: 'pictures and files inside results of calls',
    why: 'they follow in a user message that names the call',
  },
  {
    from: 'messages',
    to: 'chat, gemini, responses',
    what: '`cache_control`',
    why: 'it changes the cost, not the answer; providers that know it get it',
  },
  { from: 'messages', to: 'chat', what: '`user_id` of more than 64 characters', why: 'Sluice sends its digest' },
  {
    from: 'responses',
    to: 'chat, messages, gemini, converse',
    what: 'ids and states of items, and `encrypted_content` of reasoning',
    why: 'the provider stores nothing by these ids, and only the model that encrypted the content can read it',
  },
  {
    from: 'responses',
    to: 'chat, messages',
    what: 'the wish for a `reasoning.summary`',
    why: 'Sluice shows the reasoning that a provider returns, and asks for it by the effort',
  },
  {
    from: 'answers of messages',
    to: 'chat, responses',
    what: 'which `stop_sequence` was met, and which kind of cache was written',
    why: 'those formats have no fields for them',
  },
  {
    from: 'answers of chat, gemini, converse, responses',
    to: 'messages',
    what: 'the sources of an answer (`annotations`) and the probabilities of its tokens',
    why: 'sources there are encrypted by the search of the provider; there is no field for probabilities',
  },
  {
    from: 'answers of gemini',
    to: 'chat, messages, responses',
    what: 'code that ran, and its output',
    why: 'the result is in the text',
  },
  {
    from: 'answers of gemini, converse',
    to: 'chat, messages, responses',
    what: 'thoughts, native reasons, ratings and traces, under strict OpenAI compliance',
    why: 'strict OpenAI compliance has no fields for them; turn it off, or ask for thinking or a summary',
  },
];
