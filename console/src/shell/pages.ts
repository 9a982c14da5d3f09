/** All pages of the frame: a new one is a folder below `pages/` and a line here. */
import {
  Activity,
  BookOpenCheck,
  Building2,
  CircleDollarSign,
  KeyRound,
  LayoutDashboard,
  type LucideIcon,
  ShieldX,
  SquareTerminal,
  UserRound,
  Users,
} from 'lucide-react';
import { type ComponentType, lazy } from 'react';

export type Group = 'Home' | 'Observe' | 'Build' | 'Access' | 'Govern' | 'You';

export interface Page {
  /** Below `/console`; `/:id` for one object. */
  readonly path: string;
  /** Also the name in the navigation; a page without a group is reached from others. */
  readonly label: string;
  readonly group: Group | null;
  readonly icon: LucideIcon;
  /** Without it the page is absent. */
  readonly scope: string | null;
  /** The key after `g` that goes there. */
  readonly key?: string;
  /** In the bar of narrow screens. */
  readonly bar?: true;
  readonly view: ComponentType;
}

const page = (own: Omit<Page, 'view'>, load: () => Promise<{ Page: ComponentType }>): Page => ({
  ...own,
  view: lazy(async () => ({ default: (await load()).Page })),
});

/** biome-ignore format: a page is a line */
export const PAGES: readonly Page[] = [
  page({ path: '/', label: 'Overview', group: 'Home', icon: LayoutDashboard, scope: null, key: 'o', bar: true }, () => import('../pages/overview/page.tsx')),
  page({ path: '/requests', label: 'Requests', group: 'Observe', icon: Activity, scope: 'logs.list', key: 'r', bar: true }, () => import('../pages/requests/page.tsx')),
  page({ path: '/requests/compare', label: 'Compare requests', group: null, icon: Activity, scope: 'logs.list' }, () => import('../pages/compare/page.tsx')),
  page({ path: '/requests/:id', label: 'Request', group: null, icon: Activity, scope: 'logs.list' }, () => import('../pages/request/page.tsx')),
  page({ path: '/spend', label: 'Spend', group: 'Observe', icon: CircleDollarSign, scope: 'analytics.view', key: 's', bar: true }, () => import('../pages/spend/page.tsx')),
  page({ path: '/denials', label: 'Denials', group: 'Observe', icon: ShieldX, scope: 'logs.list', key: 'd' }, () => import('../pages/denials/page.tsx')),
  page({ path: '/playground', label: 'Playground', group: 'Build', icon: SquareTerminal, scope: 'completions.write', key: 'p' }, () => import('../pages/playground/page.tsx')),
  page({ path: '/keys', label: 'API keys', group: 'Access', icon: KeyRound, scope: 'workspace_user_api_keys.list', key: 'k', bar: true }, () => import('../pages/keys/page.tsx')),
  page({ path: '/keys/:id', label: 'API key', group: null, icon: KeyRound, scope: 'workspace_user_api_keys.list' }, () => import('../pages/keys/detail.tsx')),
  page({ path: '/workspaces', label: 'Workspaces', group: 'Access', icon: Building2, scope: 'workspaces.list', key: 'w' }, () => import('../pages/workspaces/page.tsx')),
  page({ path: '/people', label: 'People', group: 'Access', icon: Users, scope: 'organisation_users.list', key: 'u' }, () => import('../pages/people/page.tsx')),
  page({ path: '/audit', label: 'Audit', group: 'Govern', icon: BookOpenCheck, scope: 'audit_logs.list', key: 'a' }, () => import('../pages/audit/page.tsx')),
  page({ path: '/account', label: 'Your account', group: null, icon: UserRound, scope: null }, () => import('../pages/account.tsx')),
  page({ path: '/me', label: 'Me', group: 'You', icon: UserRound, scope: null, key: 'm' }, () => import('../pages/me/page.tsx')),
];

export const GROUPS: readonly Group[] = ['Home', 'Observe', 'Build', 'Access', 'Govern', 'You'];
