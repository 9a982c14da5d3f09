/** The tables of guardrails, a part of `schema.ts`, and what their rows hold. */
import { int, json, nullable, table, text, time } from './column.ts';

/** A check as it is stored: checked parameters, without what is secret. */
export interface StoredCheck {
  id: string;
  name?: string;
  is_enabled: boolean;
  parameters: Record<string, unknown>;
  /** `credentials` and `headers` of the parameters: an envelope around JSON. */
  sealed?: string;
}

export interface Feedback {
  value: number;
  weight: number;
  metadata: string;
}

/** What follows from the verdict. Absent means the default. */
export interface GuardrailActions {
  /** A failing guardrail refuses (446); without it the answer says so (246). */
  deny: boolean;
  /** Runs in parallel with the request: its result is in the log only. */
  async?: boolean;
  /** Checks run one after the other, and the first that fails ends it. */
  sequential?: boolean;
  /** Returns a refusal as a normal answer with status 200. */
  soft_deny_200?: boolean;
  on_success?: { feedback: Feedback };
  on_fail?: { feedback: Feedback };
  /** Whether a check that cannot be carried out counts as failed; default `deny` where the guardrail denies, else `allow`. */
  on_error?: 'allow' | 'deny';
  /** Which messages of a request checks look at: all (default), those since the last answer, or the last. */
  messages?: 'all' | 'new' | 'last';
  /** Output checks of a stream: as it passes where checks can (default), or before anything of it is shown. */
  stream?: 'incremental' | 'buffer';
  /** Whether the body of a request that it denies may be kept in logs as it came; default `withheld`. */
  log_content?: 'withheld' | 'as_sent';
}

export type ToolCallPhase = 'beforeToolCall' | 'afterToolCall';

const audit = { created_at: time(), last_updated_at: time() };

export const GUARDRAIL_TABLES = {
  guardrails: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    /** Null for a guardrail of the organisation. */
    workspace_id: nullable(text()),
    slug: text(),
    name: text(),
    target: text<'llm' | 'mcp_tools'>(),
    status: text<'active' | 'archived'>(),
    version_id: text(),
    owner_id: text(),
    updated_by: nullable(text()),
    ...audit,
  }),
  guardrail_versions: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    guardrail_id: text(),
    number: int(),
    /** Credentials and headers of a check are sealed, all together, in `sealed`. */
    checks: json<StoredCheck[]>(),
    actions: json<GuardrailActions>(),
    created_by: text(),
    created_at: time(),
  }),
  /** MCP servers whose tool calls a guardrail watches. */
  guardrail_mcp_servers: table(['id'], 'organisation', {
    id: text(),
    organisation_id: text(),
    guardrail_id: text(),
    mcp_server_id: text(),
    run_on: json<ToolCallPhase[]>(),
    /** Empty: every tool of the server. */
    capability_ids: json<string[]>(),
    ...audit,
  }),
} as const;
