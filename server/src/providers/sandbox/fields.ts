import { isObject, type JsonObject, type JsonValue } from '../../kernel/json.ts';
import { invalid, missing } from './problem.ts';

function kindOf(value: JsonValue): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'an array';
  switch (typeof value) {
    case 'object':
      return 'an object';
    case 'string':
      return 'a string';
    case 'boolean':
      return 'a boolean';
    default:
      return Number.isInteger(value) ? 'an integer' : 'a number';
  }
}

function wrong(path: string, wanted: string, value: JsonValue): never {
  throw invalid(
    `Invalid type for '${path}': expected ${wanted}, but got ${kindOf(value)} instead.`,
    path,
    'invalid_type',
  );
}

/** Reads the fields of one object and refuses what a provider would refuse; null counts as absent. */
export class Fields {
  readonly value: JsonObject;
  readonly path: string;

  constructor(value: JsonObject, path = '') {
    this.value = value;
    this.path = path;
  }

  /** `value` as an object at `path`. */
  static of(value: JsonValue | undefined, path: string): Fields {
    if (isObject(value)) return new Fields(value, `${path}.`);
    return wrong(path, 'an object', value ?? null);
  }

  at(name: string): string {
    return this.path + name;
  }

  raw(name: string): JsonValue | undefined {
    const value = Object.hasOwn(this.value, name) ? this.value[name] : undefined;
    return value === null ? undefined : value;
  }

  has(name: string): boolean {
    return this.raw(name) !== undefined;
  }

  text(name: string): string | undefined {
    const value = this.raw(name);
    return value === undefined || typeof value === 'string' ? value : wrong(this.at(name), 'a string', value);
  }

  needText(name: string): string {
    const value = this.text(name);
    if (value === undefined) throw missing(this.at(name));
    return value;
  }

  /** The name of a function or tool, as OpenAI's models take it; an empty one would be found in every text. */
  needName(): string {
    const name = this.needText('name');
    if (/^[a-zA-Z0-9_-]{1,64}$/.test(name)) return name;
    throw invalid(
      `Invalid '${this.at('name')}': string does not match pattern. Expected a string of 1 to 64 characters that matches the pattern '^[a-zA-Z0-9_-]+$'.`,
      this.at('name'),
      'invalid_value',
    );
  }

  bool(name: string): boolean | undefined {
    const value = this.raw(name);
    return value === undefined || typeof value === 'boolean' ? value : wrong(this.at(name), 'a boolean', value);
  }

  number(name: string, min: number, max: number): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number') return wrong(this.at(name), 'a decimal', value);
    this.#within(name, value, min, max, 'decimal');
    return value;
  }

  integer(name: string, min: number, max: number): number | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (typeof value !== 'number' || !Number.isInteger(value)) return wrong(this.at(name), 'an integer', value);
    this.#within(name, value, min, max, 'integer');
    return value;
  }

  #within(name: string, value: number, min: number, max: number, kind: string): void {
    const path = this.at(name);
    if (value < min) {
      throw invalid(
        `Invalid '${path}': ${kind} below minimum value. Expected a value >= ${min}, but got ${value} instead.`,
        path,
        `${kind}_below_min_value`,
      );
    }
    if (value > max) {
      throw invalid(
        `Invalid '${path}': ${kind} above maximum value. Expected a value <= ${max}, but got ${value} instead.`,
        path,
        `${kind}_above_max_value`,
      );
    }
  }

  oneOf<T extends string>(name: string, values: readonly T[]): T | undefined {
    const value = this.text(name);
    if (value === undefined) return undefined;
    const known = values.find((other) => other === value);
    if (known !== undefined) return known;
    const path = this.at(name);
    const list = values.map((other) => `'${other}'`).join(', ');
    throw invalid(`Invalid value: '${value.slice(0, 100)}'. Supported values are: ${list}.`, path, 'invalid_value');
  }

  list(name: string, most = Number.POSITIVE_INFINITY): readonly JsonValue[] | undefined {
    const value = this.raw(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) return wrong(this.at(name), 'an array', value);
    if (value.length <= most) return value;
    throw invalid(
      `Invalid '${this.at(name)}': array too long. Expected an array with maximum length ${most}, but got an array with length ${value.length} instead.`,
      this.at(name),
      'array_above_max_length',
    );
  }

  /** The tools of a request. Each is looked for in the prompt, so their number is bounded, as OpenAI bounds it. */
  tools(name: 'tools' | 'functions'): readonly JsonValue[] {
    return this.list(name, 128) ?? [];
  }

  /** A list with at least one item. */
  needList(name: string): readonly JsonValue[] {
    const value = this.list(name);
    if (value === undefined) throw missing(this.at(name));
    if (value.length === 0) {
      const path = this.at(name);
      throw invalid(`Invalid '${path}': empty array. Expected an array with minimum length 1.`, path, 'empty_array');
    }
    return value;
  }

  object(name: string): Fields | undefined {
    const value = this.raw(name);
    return value === undefined ? undefined : Fields.of(value, this.at(name));
  }

  /** One text or a list of texts, as a list. */
  texts(name: string, max: number): string[] {
    const value = this.raw(name);
    if (value === undefined) return [];
    if (typeof value === 'string') return [value];
    if (!Array.isArray(value)) return wrong(this.at(name), 'a string or an array of strings', value);
    if (value.length > max) {
      const path = this.at(name);
      throw invalid(
        `Invalid '${path}': array too long. Expected an array with maximum length ${max}, but got an array with length ${value.length} instead.`,
        path,
        'array_above_max_length',
      );
    }
    return value.map((item, i) =>
      typeof item === 'string' ? item : wrong(`${this.at(name)}[${i}]`, 'a string', item),
    );
  }

  wrong(name: string, wanted: string): never {
    return wrong(this.at(name), wanted, this.raw(name) ?? null);
  }
}
