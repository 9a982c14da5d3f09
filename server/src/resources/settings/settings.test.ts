import { describe, expect, it } from 'vitest';
import type { Row } from '../../store/schema.ts';
import { blocksInlineConfig } from './settings.ts';

type Stored = Row<'organisations'>['settings'];

describe('saved-only mode', () => {
  const section = (block_inline_config?: boolean) => ({
    settings: {},
    security_settings:
      block_inline_config === undefined ? {} : { data_plane_security_settings: { block_inline_config } },
  });
  const opened = { workspace_overrides: { data_plane_security_settings: true } };

  it.each<[string, Record<string, unknown>, boolean | undefined, boolean]>([
    ['holds where nobody says anything', {}, undefined, true],
    [
      'holds where the organisation wants it, whatever the workspace says',
      { block_inline_config: true, ...opened },
      false,
      true,
    ],
    ['does not hold where the organisation lifted it', { block_inline_config: false }, undefined, false],
    ['is not the workspace’s to set while the category is closed', { block_inline_config: false }, true, false],
    ['holds where the workspace wants it and may', { block_inline_config: false, ...opened }, true, true],
    ['does not hold where both lifted it', { block_inline_config: false, ...opened }, false, false],
  ])('%s', (_title, settings, own, holds) => {
    expect(blocksInlineConfig({ settings: settings as Stored }, section(own))).toBe(holds);
  });
});
