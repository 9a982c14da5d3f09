import { libraryModels } from '../../pricing/library.ts';
import { LOCAL_PRICES } from '../../pricing/local.ts';
import { OTHER } from './cells.ts';

/** Names of callers that are remembered beside those of the catalogue: dated versions of its models. */
const MAX_LEARNED = 4_096;
/** Longer names are no label. */
const MAX_NAME = 128;
const LIBRARY = /^genai-prices:[^/]*\/(.+?)(?:\+adjusted)?$/;

/**
 * How metrics call models: by their name in the catalogue of prices, which has one for all dated versions, else by the name
 * that a workspace has stored with its provider. Any other name is one that a caller made up: `other`.
 */
export class ModelNames {
  readonly #bySource = new Map<string, string>();
  /** By provider, then by the name that callers use. */
  readonly #known = new Map<string, Map<string, string>>();
  #learned = 0;

  /**
   * @param provider id of a provider that there is
   * @param source of the price that was applied; null when there was none
   * @param configured the name under which the provider has the model stored; null when it has not
   */
  of(provider: string, model: string, source: string | null, configured: string | null): string {
    const known = this.#of(provider);
    const priced = source === null ? null : this.#priced(source);
    if (priced !== null) {
      // A request that fails has no price, and the library takes 0.2 ms to say that it does not know a name.
      if (!known.has(model) && this.#learned < MAX_LEARNED && model.length <= MAX_NAME) {
        this.#learned += 1;
        known.set(model, priced);
      }
      return priced;
    }
    const found = known.get(model) ?? (LOCAL_PRICES.has(provider) ? known.get(withoutParameters(model)) : undefined);
    return found ?? (configured !== null && configured.length <= MAX_NAME ? configured : OTHER);
  }

  #of(provider: string): Map<string, string> {
    let names = this.#known.get(provider);
    if (names === undefined) {
      const models = LOCAL_PRICES.get(provider)?.models ?? libraryModels(provider);
      names = new Map(models.map((model) => [model, model]));
      this.#known.set(provider, names);
    }
    return names;
  }

  /** The name in the library; null for a price that is not from there. */
  #priced(source: string): string | null {
    const known = this.#bySource.get(source);
    if (known !== undefined) return known;
    const name = LIBRARY.exec(source)?.[1] ?? null;
    if (name !== null) this.#bySource.set(source, name);
    return name;
  }
}

/** Those of models that Sluice itself serves follow their names like a query. */
function withoutParameters(model: string): string {
  const at = model.indexOf('?');
  return at < 0 ? model : model.slice(0, at);
}
