import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import path from 'node:path';
import chromium, { inflate } from '@sparticuz/chromium';
import { type BrowserContext, chromium as launcher } from 'playwright-core';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  // Containers have too little shared memory for pages.
  '--disable-dev-shm-usage',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** A running browser with an empty profile, or the reason why this machine cannot run one. */
export type Launched =
  | { readonly context: BrowserContext; readonly close: () => Promise<void> }
  | { readonly context: null; readonly reason: string };

/**
 * Starts Chromium: the one of the `@sparticuz/chromium` package, if need be with the system libraries that it carries,
 * else one on the PATH. With SLUICE_TEST_BROWSER=required a machine that can run none is an error instead.
 */
export async function launchBrowser(): Promise<Launched> {
  const failures: string[] = [];
  for (const candidate of [packaged, packagedWithLibraries, onPath]) {
    const profile = mkdtempSync(path.join(tmpdir(), 'sluice-browser-'));
    const remove = () => rmSync(profile, { recursive: true, force: true, maxRetries: 3 });
    try {
      const { executablePath, env } = await candidate();
      const context = await launcher.launchPersistentContext(profile, {
        executablePath,
        args: FLAGS,
        headless: true,
        timeout: 15_000,
        ...(env && { env }),
      });
      return {
        context,
        close: async () => {
          await context.close();
          remove();
        },
      };
    } catch (error) {
      remove();
      failures.push(String(error instanceof Error ? error.message : error).split('\n')[0] ?? '');
    }
  }
  const reason = `no Chromium runs on this machine: ${failures.join('; ')}`;
  if (process.env.SLUICE_TEST_BROWSER === 'required') throw new Error(reason);
  return { context: null, reason };
}

interface Candidate {
  readonly executablePath: string;
  readonly env?: Record<string, string>;
}

async function packaged(): Promise<Candidate> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new Error('the packaged Chromium is for Linux on x64');
  }
  return { executablePath: await chromium.executablePath() };
}

/** The package unpacks its copies of NSS and Expat only on the cloud it was made for; bare containers lack them too. */
async function packagedWithLibraries(): Promise<Candidate> {
  const { executablePath } = await packaged();
  const bin = path.join(path.dirname(createRequire(import.meta.url).resolve('@sparticuz/chromium')), '..', 'bin');
  const libraries = path.join(await inflate(path.join(bin, 'al2023.tar.br')), 'lib');
  return { executablePath, env: { ...environment(), LD_LIBRARY_PATH: libraries } };
}

async function onPath(): Promise<Candidate> {
  for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
    try {
      return { executablePath: execFileSync('which', [name], { encoding: 'utf8' }).trim() };
    } catch {
      // Not this one.
    }
  }
  throw new Error('no chromium on the PATH');
}

function environment(): Record<string, string> {
  return Object.fromEntries(Object.entries(process.env).filter((entry): entry is [string, string] => !!entry[1]));
}
