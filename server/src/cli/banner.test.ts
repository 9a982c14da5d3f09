import { expect, it } from 'vitest';
import type { Running } from '../compose.ts';
import { loadConfig } from '../config.ts';
import type { FirstRun } from '../first-run.ts';
import { bannerText } from './banner.ts';

const KEYS = { admin_api_key: 'slc_org_A', workspace_api_key: 'slc_wks_B', operator_api_key: 'slc_opr_C' };
const firstRun = { ...KEYS, base_url: 'http://x/v1', console_url: 'http://x/console/#token=D' } as FirstRun;
const running = { url: 'http://x', firstRun, console: true } as Running;
const config = loadConfig(['--data-dir', '/data/sluice']);

it('the first run shows its keys and the sign-in link on a terminal', () => {
  const text = bannerText(running, config, true);
  for (const secret of [...Object.values(KEYS), firstRun.console_url]) expect(text).toContain(secret);
  expect(text).toContain('block_inline_config');
});

it('elsewhere it shows where they are, and none of them', () => {
  const text = bannerText(running, config, false);
  for (const secret of [...Object.values(KEYS), 'token=D']) expect(text).not.toContain(secret);
  expect(text).toContain('/data/sluice/first-run.json');
});

it('says of each key what it is for, in one line under it', () => {
  const lines = bannerText(running, config, true).split('\n');
  for (const [key, use] of [
    [KEYS.workspace_api_key, /^ +Use this one in your app\.$/],
    [KEYS.admin_api_key, /^ +For administration scripts/],
    [KEYS.operator_api_key, /^ +Keep this one offline/],
  ] as const)
    expect(lines[lines.findIndex((line) => line.includes(key)) + 1]).toMatch(use);
});

it.each([
  ['the first run on a terminal', firstRun, true],
  ['the first run elsewhere', firstRun, false],
  ['a later start', null, true],
])('offers no console where none is built: %s', (_name, first, terminal) => {
  const text = bannerText({ ...running, firstRun: first, console: false }, config, terminal);
  expect(text).not.toContain('/console/');
  expect(text).not.toContain('sign-in link');
  if (first === null || terminal) expect(text).toContain('npm run console');
});
