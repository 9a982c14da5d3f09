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
    why: 'instructions stand apart there, all of them, in their order',
  },
  { from: 'chat', to: 'messages, gemini, converse', what: '`name` of a message', why: 'nobody is named there' },
  {
    from: 'chat, responses',
    to: 'messages, gemini, converse',
    what: '`detail` of a picture',
    why: 'it changes how many tokens a picture costs, and there is no such choice there',
  },
  {
    from: 'chat',
    to: 'messages, gemini',
    what: '`name`, `description` and `strict` of a `json_schema`',
    why: 'a schema has no name there and is always kept to',
  },
  {
    from: 'chat',
    to: 'messages, gemini, converse',
    what: 'that an assistant refused (`refusal`)',
    why: 'it becomes text of the assistant; an answer that refuses has the reason `refusal`',
  },
  {
    from: 'chat',
    to: 'messages, converse',
    what: '`reasoning_content` of earlier turns without its signature',
    why: 'a signature cannot be made; `content_blocks` carry both',
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
    what: 'borders between texts of `system`, of an assistant and of a result',
    why: 'they are one text there, with an empty line or a line end in between where they were blocks of instructions or results',
  },
  {
    from: 'messages',
    to: 'chat, gemini, converse, responses',
    what: '`is_error` of a result',
    why: 'results have no such mark there: their text begins with `Error: `',
  },
  {
    from: 'messages, responses',
    to: 'chat, gemini, converse',
    what: 'pictures and files inside results of calls',
    why: 'they follow in a message of the user that names the call',
  },
  {
    from: 'messages',
    to: 'chat, gemini, responses',
    what: '`cache_control`',
    why: 'it changes what a call costs, not what is answered; providers that know it get it',
  },
  { from: 'messages', to: 'chat', what: '`user_id` of more than 64 characters', why: 'its digest is sent' },
  {
    from: 'responses',
    to: 'chat, messages, gemini, converse',
    what: 'ids and states of items, and `encrypted_content` of reasoning',
    why: 'nothing is stored there by these ids, and only the model that encrypted it can read it',
  },
  {
    from: 'responses',
    to: 'chat, messages',
    what: '`reasoning.summary` as a wish',
    why: 'what a provider tells of its reasoning is shown; it is asked to think by the effort',
  },
  {
    from: 'answers of messages',
    to: 'chat, responses',
    what: 'which `stop_sequence` was met, and what kind of cache was written',
    why: 'there are no fields for them',
  },
  {
    from: 'answers of chat, gemini, converse, responses',
    to: 'messages',
    what: 'sources of an answer (`annotations`) and probabilities of its tokens',
    why: 'sources there are encrypted by their own search, and there are no probabilities',
  },
  {
    from: 'answers of gemini',
    to: 'chat, messages, responses',
    what: 'code that was run, and what it printed',
    why: 'what it led to is in the text',
  },
  {
    from: 'answers of gemini, converse',
    to: 'chat, messages, responses',
    what: 'thoughts, native reasons, ratings and traces in strict shape',
    why: 'strict shape has no fields for them; turn it off, or ask for thinking or a summary',
  },
];
