/** Follows a stream of chat completions, or of completions. */
import { isObject, type JsonObject } from '../../../kernel/json.ts';
import {
  type Assembler,
  assign,
  goesOn,
  indexOf,
  listOf,
  member,
  merge,
  OutOfPlace,
  type Region,
  region,
  slot,
  without,
} from '../assembler.ts';

export class ChatAssembler implements Assembler {
  readonly sketch: JsonObject = { choices: [] };

  take(event: JsonObject): Region[] {
    const out: Region[] = [];
    const rest = without(event, 'choices', 'obfuscation');
    assign(this.sketch, rest);
    out.push(region(rest, '', false, (next) => void Object.assign(event, next)));
    if (event.choices === undefined || event.choices === null) return out;
    if (!Array.isArray(event.choices)) throw new OutOfPlace();
    for (const [position, choice] of event.choices.entries()) {
      if (!isObject(choice)) throw new OutOfPlace();
      const index = indexOf(choice.index, position);
      const whole = slot(this.sketch, 'choices', index);
      const path = `choices[${index}]`;
      const said = without(choice, 'delta', 'text', 'logprobs');
      assign(whole, said);
      out.push(region(said, path, false, (next) => void Object.assign(choice, next)));
      if (typeof choice.text === 'string') {
        whole.text = `${typeof whole.text === 'string' ? whole.text : ''}${choice.text}`;
        out.push(member(choice, 'text', 'text', path, true));
      }
      if (choice.delta !== undefined && choice.delta !== null && !isObject(choice.delta)) throw new OutOfPlace();
      if (isObject(choice.delta)) {
        const message = isObject(whole.message) ? whole.message : {};
        whole.message = message;
        this.#delta(message, choice.delta, `${path}.message`, out);
      }
    }
    return out;
  }

  #delta(message: JsonObject, delta: JsonObject, path: string, out: Region[]): void {
    const lists = Object.keys(delta).filter((name) => Array.isArray(delta[name]));
    const rest = lists.length === 0 ? delta : without(delta, ...lists);
    merge(message, rest);
    out.push(region(rest, path, true, (next) => void Object.assign(delta, next)));
    for (const name of lists) {
      const list = delta[name];
      if (!Array.isArray(list)) continue;
      const there = listOf(message, name);
      for (const [i, value] of list.entries()) {
        if (isObject(value)) {
          const index = indexOf(value.index, goesOn(there.at(-1), value) ? there.length - 1 : there.length);
          const said = without(value, 'index');
          merge(slot(message, name, index), said);
          out.push(region(said, `${path}.${name}[${index}]`, true, (next) => void Object.assign(value, next)));
        } else {
          const at = there.push(value) - 1;
          out.push(
            region({ [name]: value }, `${path}.${name}[${at}]`, true, (next) => {
              list[i] = next[name] ?? null;
            }),
          );
        }
      }
    }
  }

  answer(): JsonObject {
    const { object } = this.sketch;
    return typeof object === 'string' ? { ...this.sketch, object: object.replace(/\.chunk$/, '') } : this.sketch;
  }
}
