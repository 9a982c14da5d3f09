import { z } from 'zod';
import { type Account, type AccountField, account } from '../account.ts';

const json = z.record(z.string(), z.unknown());

const project: AccountField = {
  address: true,
  virtualKey: 'vertexProjectId',
  config: {},
  request: { pinned: true, bound: 'x-goog-user-project' },
};

export const vertexAccount: Account = account(
  {
    vertex_auth_type: {
      required: true,
      virtualKey: 'vertexAuthType',
      request: { own: true },
      choices: {
        basic: { needsKey: true, fields: { vertex_project_id: { ...project, required: true } } },
        serviceAccount: {
          needsKey: false,
          fields: {
            /** The key file of a service account, as its JSON object. */
            vertex_service_account_json: {
              schema: json.refine((value) => JSON.stringify(value).length <= 16_384, {
                error: 'must have at most 16384 characters as JSON',
              }),
              required: true,
              secret: true,
              virtualKey: 'vertexServiceAccountJson',
              config: { schema: json, json: true },
              request: { own: true },
            },
            vertex_project_id: project,
          },
        },
        wif: { needsKey: false, fields: { vertex_project_id: project } },
      },
    },
    vertex_region: {
      required: true,
      address: true,
      virtualKey: 'vertexRegion',
      config: {},
      request: { pinned: true },
    },
    vertex_skip_ptu_cost_attribution: { schema: z.boolean(), virtualKey: 'vertexSkipPtuCostAttribution' },
  },
  (settings) => {
    if (settings.vertex_auth_type !== undefined) return;
    settings.vertex_auth_type = settings.vertex_service_account_json === undefined ? 'basic' : 'serviceAccount';
  },
);
