/**
 * Writes messages of OTLP in the binary form of protocol buffers, from the same objects that are its JSON form. Messages are
 * written from their end: so the length of what is nested is known before it has to be written, and nothing is copied.
 */

/** A field of a message: its number and its kind. `id`: bytes as hexadecimal digits. Numbers of 64 bits may be texts. */
export type Field =
  | readonly [number: number, kind: 'string' | 'bool' | 'enum' | 'int64' | 'fixed64' | 'fixed32' | 'double' | 'id']
  | readonly [number: number, kind: 'packed_fixed64' | 'packed_double']
  | readonly [number: number, kind: Message]
  | readonly [number: number, kind: 'repeated', of: Message];

/** By the names of the JSON form. */
export interface Message {
  readonly [name: string]: Field;
}

type Value = Readonly<Record<string, unknown>>;

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const FIXED32 = 5;
const FIRST = 64 << 10;

/** The bytes of one message. Members that the message does not have are a TypeError: they would be lost. */
export function encodeMessage(message: Message, value: object): Buffer {
  const writer = new Writer();
  writer.message(message, value as Value);
  return writer.bytes();
}

class Writer {
  #buffer = Buffer.allocUnsafe(FIRST);
  /** Everything from here on is written. */
  #at = FIRST;

  bytes(): Buffer {
    return Buffer.from(this.#buffer.subarray(this.#at));
  }

  message(message: Message, value: Value): void {
    const names = Object.keys(value);
    for (let i = names.length - 1; i >= 0; i--) {
      const name = names[i] ?? '';
      const field = message[name];
      if (field === undefined) throw new TypeError(`the message has no field ${name}`);
      const member = value[name];
      if (member === undefined) continue;
      this.#field(field, member);
    }
  }

  #field(field: Field, value: unknown): void {
    const [number, kind] = field;
    switch (kind) {
      case 'repeated': {
        const list = value as readonly Value[];
        for (let i = list.length - 1; i >= 0; i--) this.#nested(number, field[2], list[i] ?? {});
        break;
      }
      case 'string': {
        const text = value as string;
        const length = Buffer.byteLength(text);
        this.#room(length);
        this.#at -= length;
        this.#buffer.write(text, this.#at, length, 'utf8');
        this.#head(number, length);
        break;
      }
      case 'id': {
        const digits = value as string;
        this.#room(digits.length / 2);
        this.#at -= digits.length / 2;
        this.#buffer.write(digits, this.#at, 'hex');
        this.#head(number, digits.length / 2);
        break;
      }
      case 'bool':
      case 'enum':
        this.#varint(Number(value));
        this.#tag(number, VARINT);
        break;
      case 'int64':
        this.#int64(Number(value));
        this.#tag(number, VARINT);
        break;
      case 'fixed64':
        this.#fixed64(value);
        this.#tag(number, FIXED64);
        break;
      case 'double':
        this.#double(value);
        this.#tag(number, FIXED64);
        break;
      case 'fixed32':
        this.#room(4);
        this.#at = this.#buffer.writeUInt32LE(value as number, this.#at - 4) - 4;
        this.#tag(number, FIXED32);
        break;
      case 'packed_fixed64':
      case 'packed_double': {
        const list = value as readonly unknown[];
        for (let i = list.length - 1; i >= 0; i--) {
          if (kind === 'packed_double') this.#double(list[i]);
          else this.#fixed64(list[i]);
        }
        this.#head(number, list.length * 8);
        break;
      }
      default:
        this.#nested(number, kind, value as Value);
    }
  }

  #nested(number: number, message: Message, value: Value): void {
    const end = this.#buffer.length - this.#at;
    this.message(message, value);
    this.#head(number, this.#buffer.length - this.#at - end);
  }

  #fixed64(value: unknown): void {
    this.#room(8);
    this.#at = this.#buffer.writeBigUInt64LE(BigInt(value as string | number), this.#at - 8) - 8;
  }

  #double(value: unknown): void {
    this.#room(8);
    this.#at = this.#buffer.writeDoubleLE(value as number, this.#at - 8) - 8;
  }

  #head(number: number, length: number): void {
    this.#varint(length);
    this.#tag(number, LENGTH);
  }

  #tag(number: number, wire: number): void {
    this.#varint((number << 3) | wire);
  }

  /** Of a whole number that a JavaScript number holds exactly. */
  #int64(value: number): void {
    if (value >= 0) return void this.#varint(value);
    // Two's complement, ten bytes.
    this.#room(10);
    const bytes: number[] = [];
    for (let left = BigInt.asUintN(64, BigInt(value)); left > 0n; left >>= 7n) bytes.push(Number(left & 0x7fn));
    this.#sevens(bytes);
  }

  /** Of a number from 0 on. */
  #varint(value: number): void {
    this.#room(10);
    if (value < 0x80) {
      this.#buffer[--this.#at] = value;
      return;
    }
    const bytes: number[] = [];
    for (let left = value; left > 0; left = Math.floor(left / 0x80)) bytes.push(left % 0x80);
    this.#sevens(bytes);
  }

  #sevens(bytes: readonly number[]): void {
    for (let i = bytes.length - 1; i >= 0; i--) {
      this.#buffer[--this.#at] = (bytes[i] ?? 0) | (i === bytes.length - 1 ? 0 : 0x80);
    }
  }

  /** What is written moves to the end of a larger buffer. */
  #room(bytes: number): void {
    if (this.#at >= bytes) return;
    const used = this.#buffer.length - this.#at;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, used + bytes));
    this.#buffer.copy(larger, larger.length - used, this.#at);
    this.#at = larger.length - used;
    this.#buffer = larger;
  }
}
