import { readFile, writeFile } from 'node:fs/promises';
import { format } from 'node:util';
import { buildOpenApi } from '../admin/openapi.ts';
import { SluiceError } from '../kernel/errors.ts';
import { dataPlanePaths } from '../llm/openapi.ts';
import { oauthPaths } from '../oauth/openapi.ts';
import { ssoPaths } from '../oidc/openapi.ts';
import { ACTIONS } from '../resources/catalog.ts';
import { scimPaths } from '../scim/openapi.ts';
import type { Output } from './output.ts';

const PACKAGE = new URL('../../package.json', import.meta.url);
const FILE = new URL('../../../docs/openapi.json', import.meta.url);

/** The document as it is committed. */
export async function openApiText(): Promise<string> {
  const { version } = JSON.parse(await readFile(PACKAGE, 'utf8')) as { version: string };
  const paths = { ...dataPlanePaths(), ...scimPaths(), ...oauthPaths(), ...ssoPaths() };
  return `${JSON.stringify(buildOpenApi(ACTIONS, version, paths), null, 2)}\n`;
}

/** Writes `docs/openapi.json`, or with `--check` fails when it differs from what the code declares. */
export async function openapi(args: readonly string[], output: Output): Promise<void> {
  const unknown = args.find((arg) => arg !== '--check');
  if (unknown !== undefined)
    throw new SluiceError('validation', format('%s: unknown option; allowed is --check', unknown));
  const text = await openApiText();
  if (!args.includes('--check')) {
    await writeFile(FILE, text);
    output.out('docs/openapi.json is written.\n');
    return;
  }
  const committed = await readFile(FILE, 'utf8').catch(() => '');
  if (committed !== text)
    throw new SluiceError(
      'validation',
      'docs/openapi.json is not what the code declares; run npm run openapi and commit it.',
    );
  output.out('docs/openapi.json is current.\n');
}
