/**
 * Canonical rows in the format a provider trains on. A row is carried over whole or refused with
 * what its target cannot hold; no part of it is left out. Null counts as absent.
 */
import { isObject, type JsonObject } from '../../kernel/json.ts';
import type { RowFormat } from '../../operations/training.ts';
import { bedrockConversation, bedrockText, claude3 } from './format-bedrock.ts';
import { mistral, systemFirst, turnsOf } from './format-chat.ts';
import { vertexPreference, vertexSupervised } from './format-vertex.ts';
import type { RowKind } from './report.ts';
import { fault, has } from './rows.ts';

export interface Format {
  /**
   * The row for the provider; null when its bytes may go as they are. Throws RowFault. Called once per row and in order:
   * a target may want the same columns in all rows.
   */
  convert(row: JsonObject, kind: RowKind): JsonObject | null;
  /** Most rows the target takes. */
  readonly maximumRows?: number;
}

const CHAT = new Set(['messages', 'tools', 'parallel_tool_calls', 'functions']);
const PREFERENCE = new Set(['input', 'preferred_output', 'non_preferred_output']);
const INPUT = new Set(['messages', 'tools', 'parallel_tool_calls']);
const TEXT = new Set(['prompt', 'completion']);

/** Refuses members outside the canonical row; their names are content and not repeated. */
function known(row: JsonObject, names: ReadonlySet<string>, where: string): void {
  for (const name of Object.keys(row)) {
    if (!names.has(name) && has(row, name)) fault('unsupported', `${where} has a field that the target cannot hold`);
  }
}

function knownRow(row: JsonObject, kind: RowKind): void {
  known(row, kind === 'chat' ? CHAT : kind === 'preference' ? PREFERENCE : TEXT, 'the row');
  if (isObject(row.input)) known(row.input, INPUT, '"input"');
}

function without(kind: RowKind, wanted: RowKind, target: string): void {
  if (kind === wanted || (wanted === 'chat' && kind === 'text')) return;
  const needs = wanted === 'chat' ? 'chat or text rows' : `${wanted} rows`;
  fault('unsupported', `${target} trains on ${needs} only with this method`);
}

/** A fresh converter for one data set. */
export function formatOf(name: RowFormat): Format {
  switch (name) {
    case 'openai':
      return { convert: () => null };
    case 'together':
      return together();
    case 'fireworks':
      return {
        maximumRows: 3_000_000,
        convert(row, kind) {
          knownRow(row, kind);
          if (kind === 'preference') return null;
          return systemFirst(turnsOf(row, kind), kind);
        },
      };
    case 'mistral':
      return {
        convert(row, kind) {
          without(kind, 'chat', 'Mistral');
          knownRow(row, kind);
          return mistral(turnsOf(row, kind));
        },
      };
    case 'vertex-supervised':
      return {
        convert(row, kind) {
          without(kind, 'chat', 'Vertex AI');
          knownRow(row, kind);
          return vertexSupervised(turnsOf(row, kind));
        },
      };
    case 'vertex-preference':
      return {
        convert(row, kind) {
          without(kind, 'preference', 'Vertex AI');
          knownRow(row, kind);
          return vertexPreference(row);
        },
      };
    case 'bedrock-conversation':
      return {
        convert(row, kind) {
          without(kind, 'chat', 'Bedrock');
          knownRow(row, kind);
          return bedrockConversation(turnsOf(row, kind));
        },
      };
    case 'bedrock-claude-3':
      return {
        convert(row, kind) {
          without(kind, 'chat', 'Bedrock');
          knownRow(row, kind);
          return claude3(turnsOf(row, kind));
        },
      };
    case 'bedrock-text':
      return {
        convert(row, kind) {
          without(kind, 'chat', 'Bedrock');
          knownRow(row, kind);
          return kind === 'text' ? { prompt: row.prompt, completion: row.completion } : bedrockText(turnsOf(row, kind));
        },
      };
  }
}

/** Rows go unchanged, but all of them need the columns of the first. */
function together(): Format {
  let columns: string | null = null;
  return {
    convert(row) {
      const names = Object.keys(row).sort().join('\n');
      columns ??= names;
      if (names !== columns)
        fault('columns', 'the row has other fields than the first row, Together needs the same in all');
      return null;
    },
  };
}
