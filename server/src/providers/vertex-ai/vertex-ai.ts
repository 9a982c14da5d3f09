import { z } from 'zod';
import { bearer } from '../openai-compatible.ts';
import type { Provider } from '../provider.ts';
import { headerValue, settingsOf } from '../settings.ts';
import { batches } from './batches.ts';
import { files } from './files.ts';
import { jobs } from './jobs.ts';
import { vertexBase } from './place.ts';

/**
 * Google Vertex AI: tuning, files in Cloud Storage and batches (providers §6). Which of the settings an account needs
 * depends on `vertex_auth_type`.
 */
export const vertexAi: Provider = {
  id: 'vertex-ai',
  title: 'Google Vertex AI',
  settings: settingsOf({
    vertex_auth_type: z.enum(['basic', 'serviceAccount', 'wif']).optional(),
    vertex_region: headerValue.optional(),
    vertex_project_id: headerValue.optional(),
    vertex_service_account_json: z.record(z.string(), z.unknown()).optional(),
    vertex_skip_ptu_cost_attribution: z.boolean().optional(),
  }),
  secretSettings: ['vertex_service_account_json'],
  // Only one of the three ways of signing in uses the key.
  needsKey: false,
  baseUrl: vertexBase,
  authorize: bearer,
  bindings: {},
  passThrough: false,
  training: { jobs, files, batches },
};
