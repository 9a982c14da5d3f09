/**
 * Builds the guides that the server answers with below `/docs/guides/`: a page for each, and a list of all that can be
 * searched. Made from `docs/guides` and the documents that these lead to.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Marked, Renderer } from 'marked';

/** Documents beside the guides that guides lead to, as paths in the repository. */
const BESIDE = ['README.md', 'docs/glossary.md', 'docs/guardrail-coverage.md', 'docs/limit-coverage.md'];

interface Guide {
  /** In its address: `/docs/guides/{name}`. */
  readonly name: string;
  readonly title: string;
  /** Its first paragraph, as text. */
  readonly about: string;
  readonly html: string;
  /** Each word of it once, in small letters. */
  readonly words: string;
}

/** Writes the pages to `docs/guides` below `dist`. @param root the repository */
export function writeGuides(dist: string, root: string): void {
  const sources = [...readdirSync(path.join(root, 'docs/guides')).map((file) => `docs/guides/${file}`), ...BESIDE];
  const names = new Map(
    sources.filter((file) => file.endsWith('.md')).map((file) => [file, path.basename(file, '.md').toLowerCase()]),
  );
  const guides = [...names].map(([file, name]) =>
    guideOf(name, readFileSync(path.join(root, file), 'utf8'), (href) => addressOf(href, file, names)),
  );
  guides.sort((a, b) => a.title.localeCompare(b.title, 'en'));
  const folder = path.join(dist, 'docs', 'guides');
  mkdirSync(folder, { recursive: true });
  writeFileSync(path.join(folder, 'index.html'), page('Guides', '', listOf(guides)));
  for (const guide of guides) {
    const html = page(guide.title, sideOf(guides, guide), `<article>${guide.html}</article>`);
    writeFileSync(path.join(folder, `${guide.name}.html`), html);
  }
}

/** Where a link of a document leads on the server; null where the server has no such page. */
function addressOf(href: string, from: string, names: ReadonlyMap<string, string>): string | null {
  if (/^(https?:|#)/.test(href)) return href;
  const [target = '', anchor] = href.split('#');
  const file = path.posix.normalize(path.posix.join(path.posix.dirname(from), target));
  if (file === 'docs/openapi.json') return '/openapi.json';
  const name = names.get(file);
  return name === undefined ? null : `/docs/guides/${name}${anchor === undefined ? '' : `#${anchor}`}`;
}

function guideOf(name: string, markdown: string, address: (href: string) => string | null): Guide {
  const used = new Map<string, number>();
  const marked = new Marked({ gfm: true });
  marked.use({
    renderer: {
      heading({ tokens, depth }) {
        const id = anchorOf(this.parser.parseInline(tokens, this.parser.textRenderer), used);
        return `<h${depth} id="${id}">${this.parser.parseInline(tokens)}</h${depth}>\n`;
      },
      link({ href, tokens }) {
        const to = address(href);
        const text = this.parser.parseInline(tokens);
        return to === null ? text : `<a href="${escaped(to)}">${text}</a>`;
      },
      // Nothing is loaded from elsewhere, and no document has markup of its own.
      image: ({ text }) => escaped(text),
      html: ({ text }) => escaped(text),
      // Wide ones scroll by themselves, also with the keyboard.
      table(token) {
        return `<div class="scroll" tabindex="0">${Renderer.prototype.table.call(this, token)}</div>`;
      },
      tablecell(token) {
        // A corner without a text heads nothing.
        return Renderer.prototype.tablecell.call(this, { ...token, header: token.header && token.text !== '' });
      },
      code: ({ text }) => `<pre tabindex="0"><code>${escaped(text)}\n</code></pre>\n`,
    },
  });
  const tokens = marked.lexer(markdown);
  const title = /^# (.+)$/m.exec(markdown)?.[1] ?? name;
  const about = tokens.find((token) => token.type === 'paragraph');
  return {
    name,
    title: title.replaceAll('`', ''),
    about: textOf(marked.parser(about ? [about] : [])),
    html: marked.parser(tokens),
    words: [...new Set(markdown.toLowerCase().match(/[\p{L}\p{N}_./@-]{2,}/gu))].join(' '),
  };
}

/** The anchor of a heading, as code hosts make it: links in the documents mean those. */
function anchorOf(text: string, used: Map<string, number>): string {
  const plain = text
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replaceAll(/\s/g, '-');
  const before = used.get(plain) ?? 0;
  used.set(plain, before + 1);
  return before === 0 ? plain : `${plain}-${before}`;
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escaped = (text: string): string => text.replaceAll(/[&<>"]/g, (one) => ENTITIES[one] ?? one);
/** Text of markup, still escaped. */
const textOf = (html: string): string => html.replaceAll(/<[^>]*>/g, '').trim();

const listOf = (guides: readonly Guide[]): string => `<h1>Guides</h1>
<p class="find"><label for="find">Find in the guides</label><input id="find" type="search" autocomplete="off"></p>
<p id="found" role="status"></p>
<ul class="list">
${guides
  .map(
    ({ name, title, about, words }) =>
      `<li data-words="${escaped(words)}"><a href="/docs/guides/${name}">${escaped(title)}</a><span>${about}</span></li>`,
  )
  .join('\n')}
</ul>`;

const sideOf = (guides: readonly Guide[], now: Guide): string => `<nav class="side" aria-label="Guides"><ul>
${guides
  .map(
    (guide) =>
      `<li><a href="/docs/guides/${guide.name}"${guide === now ? ' aria-current="page"' : ''}>${escaped(guide.title)}</a></li>`,
  )
  .join('\n')}
</ul></nav>`;

/** The way between reference, guides and console, on each page. */
export const TOP = `<nav class="docs-top" aria-label="Sluice">
<a href="/docs/">API reference</a> <a href="/docs/guides/">Guides</a> <a href="/console/">Console</a>
</nav>`;

const page = (title: string, side: string, content: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escaped(title)} · Sluice</title>
<script src="/docs/js/guides.js"></script>
<link rel="stylesheet" href="/docs/js/guides.css">
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
${TOP}
<div class="frame">
${side}
<main id="content" tabindex="-1">
${content}
</main>
</div>
</body>
</html>
`;
