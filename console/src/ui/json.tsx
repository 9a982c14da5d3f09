import { CodeBlock } from '../components/copy.tsx';

/** A value as indented JSON with its copy button. */
export const Json = ({ value, what }: { value: unknown; what: string }) => (
  <CodeBlock code={JSON.stringify(value, null, 2) ?? ''} what={what} />
);

/** JSON in a text, as a value; the text itself where it is none. */
export function parsed(text: string | null): unknown {
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
