/** The paths of SCIM below its base, and what each method does (RFC 7644 §3.2). */
import { SluiceError } from '../kernel/errors.ts';
import type { JsonObject } from '../kernel/json.ts';
import { isUuid } from '../resources/fields.ts';
import type { Answered, Conditions, ScimCall } from './call.ts';
import { resourceTypes, schemas, serviceProviderConfig } from './discovery.ts';
import { ScimError } from './errors.ts';
import { changeGroup, createGroup, deleteGroup, getGroup, listGroups, replaceGroup } from './groups.ts';
import { listQueryOf, projectionOf } from './page.ts';
import { changeUser, createUser, deleteUser, getUser, listUsers, replaceUser } from './users.ts';

/** What a request says beside its path. */
export interface ScimQuestion {
  readonly query: Readonly<Record<string, string>>;
  /** Empty where none is sent. */
  readonly body: JsonObject;
  readonly conditions: Conditions;
}

type Run = (call: ScimCall, asked: ScimQuestion) => Promise<Answered>;
type Runs = Readonly<Partial<Record<'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE', Run>>>;

export interface Route {
  readonly run: Runs;
  /** Methods that it answers. */
  readonly methods: readonly string[];
  /** Whether its methods other than GET write. */
  readonly writes: boolean;
  /** As the audit log calls it. */
  readonly resource: string;
  /** In the path; null for none, and for what cannot be one. */
  readonly id: string | null;
}

const route = (run: Runs, resource = 'scim', id: string | null = null, writes = false): Route => ({
  run,
  methods: Object.keys(run),
  writes,
  resource,
  id: id !== null && isUuid(id) ? id.toLowerCase() : null,
});

const found = async (body: JsonObject): Promise<Answered> => ({ status: 200, body });

/** Throws 404 for a path that SCIM does not have. */
export function routeOf(path: string): Route {
  const [kind = '', id, ...more] = path.split('/').slice(1).map(decoded);
  const one = id === undefined || id === '' ? null : id;
  if (more.length > 0 && kind !== 'Bulk' && kind !== 'Me') throw noPath();
  switch (kind) {
    case 'Users':
      if (one === null) return route({ GET: users, POST: makeUser }, 'scim-users', null, true);
      if (one === '.search') return route({ POST: searchUsers });
      return route(
        {
          GET: (call, { query }) => getUser(call, one, projectionOf(query)),
          PUT: (call, { body, conditions }) => replaceUser(call, one, body, conditions),
          PATCH: (call, { body, conditions }) => changeUser(call, one, body, conditions),
          DELETE: (call, { conditions }) => deleteUser(call, one, conditions),
        },
        'scim-users',
        one,
        true,
      );
    case 'Groups':
      if (one === null) return route({ GET: groups, POST: makeGroup }, 'scim-groups', null, true);
      if (one === '.search') return route({ POST: searchGroups });
      return route(
        {
          GET: (call, { query }) => getGroup(call, one, projectionOf(query)),
          PUT: (call, { body, query, conditions }) => replaceGroup(call, one, body, projectionOf(query), conditions),
          PATCH: (call, { body, conditions }) => changeGroup(call, one, body, conditions),
          DELETE: (call, { conditions }) => deleteGroup(call, one, conditions),
        },
        'scim-groups',
        one,
        true,
      );
    case 'ServiceProviderConfig':
      if (one !== null) throw noPath();
      return route({ GET: ({ base }) => found(serviceProviderConfig(base)) });
    case 'ResourceTypes':
      return route({ GET: ({ base }) => found(resourceTypes(base, one)) });
    case 'Schemas':
      return route({ GET: (call) => found(schemas(call, one)) });
    case 'Bulk':
    case 'Me':
      throw new SluiceError('unsupported_operation', `Sluice does not offer /${kind}: see /ServiceProviderConfig.`);
    default:
      throw noPath();
  }
}

const users: Run = (call, { query }) => listUsers(call, listQueryOf(query));
const searchUsers: Run = (call, { body }) => listUsers(call, listQueryOf(body));
const makeUser: Run = (call, { body }) => createUser(call, body);
const groups: Run = (call, { query }) => listGroups(call, listQueryOf(query));
const searchGroups: Run = (call, { body }) => listGroups(call, listQueryOf(body));
const makeGroup: Run = (call, { body, query }) => createGroup(call, body, projectionOf(query));

const noPath = () =>
  new ScimError('noResource', 'There is no such path. SCIM has /Users, /Groups and /ServiceProviderConfig.');

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
