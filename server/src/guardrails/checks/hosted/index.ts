/** Checks that ask services of others. */
import type { Check } from '../../check.ts';
import { aporia } from './aporia.ts';
import { azurePii, contentSafety } from './azure.ts';
import { bedrockGuard } from './bedrock.ts';
import { modelArmor } from './google.ts';
import { lakera } from './lakera.ts';
import { mistralModeration, openaiModeration } from './moderation.ts';
import { pangeaPrompt, pangeaText } from './pangea.ts';
import { presidio } from './presidio.ts';
import { prismaAirs } from './prisma-airs.ts';

export const HOSTED: readonly Check[] = [
  openaiModeration,
  mistralModeration,
  contentSafety,
  azurePii,
  bedrockGuard,
  modelArmor,
  presidio,
  lakera,
  prismaAirs,
  pangeaText,
  pangeaPrompt,
  aporia,
];
