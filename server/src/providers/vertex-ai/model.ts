import { invalid } from '../../operations/convert/fields.ts';
import { bareName } from '../google/gemini-model.ts';

/** Whose model it is, or which endpoint of the account: what callers write before the last slash. */
export interface VertexModel {
  /** `endpoint` for a tuned model, which is reached by the endpoint it was deployed to. */
  readonly publisher: string;
  readonly name: string;
}

const ENDPOINT = /^(?:projects\/[^/]+\/locations\/[^/]+\/endpoints\/|endpoints\/)?(\d{1,32})$/;
const FULL = /^publishers\/([a-z0-9-]+)\/models\/(.+)$/;
const SHORT = /^([a-z][a-z0-9-]*)\/(.+)$/;
/** It becomes part of a path. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}(?:@[A-Za-z0-9._-]{1,64})?$/;

/**
 * `anthropic/claude-opus-4-1`, `publishers/meta/models/llama-…`, `endpoints/123`, or a bare name: Claude and Mistral models
 * are known by it, any other is Google's. A resource name of an endpoint counts by its number alone: calls stay in the
 * project and region of the account, whatever it says.
 */
export function vertexModel(model: string): VertexModel {
  const endpoint = ENDPOINT.exec(model)?.[1];
  if (endpoint !== undefined) return { publisher: 'endpoint', name: endpoint };
  const bare = bareName(model);
  const [, publisher, name] = FULL.exec(bare) ?? SHORT.exec(bare) ?? [];
  if (publisher !== undefined && name !== undefined) return { publisher, name };
  if (bare.startsWith('claude')) return { publisher: 'anthropic', name: bare };
  if (/^(?:mistral|ministral|codestral)/.test(bare)) return { publisher: 'mistralai', name: bare };
  return { publisher: 'google', name: bare };
}

/** The name of a model, fit to be part of a path; 400 for one that is not. */
export function nameInPath(model: string): string {
  const { name } = vertexModel(model);
  if (!NAME.test(name))
    invalid('model', 'The model must be named as Vertex AI names it, for example "gemini-2.5-flash".');
  return name;
}
