import { SluiceError } from '../../kernel/errors.ts';
import type { JsonObject } from '../../kernel/json.ts';
import { projectOf } from '../google/credentials.ts';
import type { Credentials } from '../provider.ts';
import { textSetting } from '../settings.ts';
import type { AdapterContext } from '../training.ts';
import { integerOf, textOf } from '../training-calls.ts';

// Both become part of a host name or path and may come from a request header.
const REGION = /^[a-z]+(-[a-z]+[0-9]+)?$/;
const PROJECT = /^[a-z0-9:.-]{4,63}$/;
const ID = /^[A-Za-z0-9_-]{1,128}$/;

function wrong(param: string, message: string): SluiceError {
  return new SluiceError('invalid_request', message, { param });
}

function regionOf(credentials: Credentials): string | null {
  const region = textSetting(credentials, 'vertex_region');
  if (region === undefined) return null;
  if (!REGION.test(region)) throw wrong('vertex_region', 'vertex_region must be a region such as "us-central1".');
  return region;
}

/** `https://<host of the region>/v1`; the global host as long as no region is set. */
export function vertexBase(credentials: Credentials): string {
  const region = regionOf(credentials);
  if (region === null || region === 'global') return 'https://aiplatform.googleapis.com/v1';
  if (region === 'us' || region === 'eu') return `https://aiplatform.${region}.rep.googleapis.com/v1`;
  return `https://${region}-aiplatform.googleapis.com/v1`;
}

export interface Place {
  readonly project: string;
  readonly region: string;
  /** `projects/{project}/locations/{region}` */
  readonly parent: string;
}

/** Where jobs of the account run. */
export function placeOf(context: Pick<AdapterContext, 'credentials'>): Place {
  const region = regionOf(context.credentials);
  if (region === null) throw wrong('vertex_region', 'Vertex AI needs a region; set vertex_region.');
  const project = projectOf(context.credentials);
  if (project === null) throw wrong('vertex_project_id', 'Vertex AI needs a project; set vertex_project_id.');
  if (!PROJECT.test(project)) throw wrong('vertex_project_id', 'vertex_project_id must be a project id or number.');
  return { project, region, parent: `projects/${project}/locations/${region}` };
}

/** Short id of a resource: the last segment of its name. */
export const shortId = (name: string): string => name.slice(name.lastIndexOf('/') + 1);

/** Number or id of the project a resource name begins with. */
export const projectIn = (name: string): string => name.split('/')[1] ?? '';

/**
 * Path of a job from an id of ours. A full resource name must lie in the account's own project and region, because
 * the credential may reach others.
 */
export function resourcePath(context: AdapterContext, collection: string, id: string): string {
  const { project, region, parent } = placeOf(context);
  let short = id;
  if (id.includes('/')) {
    const [projects, itsProject, locations, itsRegion, itsCollection, last, ...rest] = id.split('/');
    const named = projects === 'projects' && locations === 'locations' && itsCollection === collection;
    if (!named || itsProject !== project || itsRegion !== region || rest.length > 0) {
      throw wrong('id', 'The resource name is not one of the project and region of this provider.');
    }
    short = last ?? '';
  }
  if (!ID.test(short)) {
    throw new SluiceError('not_found', 'There is no such object at the provider.');
  }
  return `/${parent}/${collection}/${short}`;
}

const LABEL_KEY = /^[a-z][a-z0-9_-]{0,63}$/;
const LABEL_VALUE = /^[a-z0-9_-]{0,64}$/;

/** `metadata` as labels; 400 for what a label cannot hold. */
export function labelsOf(metadata: Readonly<Record<string, string>> | null): Record<string, string> {
  for (const [key, value] of Object.entries(metadata ?? {})) {
    if (!LABEL_KEY.test(key) || !LABEL_VALUE.test(value)) {
      throw wrong(
        `metadata.${key}`,
        'metadata becomes labels here: keys start with a lower-case letter; keys and values have at most 64 lower-case letters, digits, "_" and "-".',
      );
    }
  }
  return { ...metadata };
}

/** Names of `google.rpc.Code` in lower case, for the errors inside jobs. */
const RPC_CODES: Readonly<Record<number, string>> = {
  1: 'cancelled',
  2: 'unknown',
  3: 'invalid_argument',
  4: 'deadline_exceeded',
  5: 'not_found',
  6: 'already_exists',
  7: 'permission_denied',
  8: 'resource_exhausted',
  9: 'failed_precondition',
  10: 'aborted',
  11: 'out_of_range',
  12: 'unimplemented',
  13: 'internal',
  14: 'unavailable',
  15: 'data_loss',
  16: 'unauthenticated',
};

/** A `google.rpc.Status` as `{code, message}`. */
export function rpcStatus(status: JsonObject): { readonly code: string; readonly message: string } {
  const code = integerOf(status.code);
  return {
    code: (code === null ? undefined : RPC_CODES[code]) ?? 'unknown',
    message: textOf(status.message) ?? 'The provider gave no reason.',
  };
}
