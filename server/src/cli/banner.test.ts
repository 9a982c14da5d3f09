import { expect, it } from 'vitest';
import type { Running } from '../compose.ts';
import { loadConfig } from '../config.ts';
import type { FirstRun } from '../first-run.ts';
import { bannerText } from './banner.ts';

const KEYS = { admin_api_key: 'slc_org_A', workspace_api_key: 'slc_wks_B', operator_api_key: 'slc_opr_C' };
const firstRun = { ...KEYS, base_url: 'http://x/v1', console_url: 'http://x/console/#token=D' } as FirstRun;
const running = { url: 'http://x', firstRun } as Running;
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
