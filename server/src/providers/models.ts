export interface ModelReference {
  /** Slug of a stored provider, without `@`; null when the model names none. */
  readonly slug: string | null;
  /** Model as the provider knows it. */
  readonly model: string;
}

/**
 * Takes `@slug/model` apart. Only a leading `@` starts a slug and only the first slash ends it, because provider model
 * names hold slashes themselves (`accounts/fireworks/models/x`).
 */
export function parseModel(model: string): ModelReference {
  if (!model.startsWith('@')) return { slug: null, model };
  const slash = model.indexOf('/');
  if (slash <= 1) return { slug: null, model };
  return { slug: model.slice(1, slash), model: model.slice(slash + 1) };
}
