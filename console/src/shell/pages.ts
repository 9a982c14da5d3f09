/** All pages of the frame: a new one is a folder below `pages/` and a line here. */
import {
  Activity,
  BookOpenCheck,
  Boxes,
  Building2,
  Cable,
  CircleDollarSign,
  Files,
  Gauge,
  GraduationCap,
  KeyRound,
  Layers,
  LayoutDashboard,
  type LucideIcon,
  Plug,
  Route,
  Settings,
  ShieldCheck,
  ShieldX,
  SquareTerminal,
  UserRound,
  Users,
} from 'lucide-react';
import { type ComponentType, lazy } from 'react';

export type Group = 'Home' | 'Observe' | 'Build' | 'Train' | 'Access' | 'Govern' | 'You';

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
  page({ path: '/connect', label: 'Connect', group: 'Build', icon: Plug, scope: 'completions.write', key: 'c' }, () => import('../pages/connect/page.tsx')),
  page({ path: '/models', label: 'Models', group: 'Build', icon: Boxes, scope: 'models.list' }, () => import('../pages/models/page.tsx')),
  page({ path: '/routing', label: 'Routing', group: 'Build', icon: Route, scope: 'configs.list' }, () => import('../pages/routing/page.tsx')),
  page({ path: '/routing/new', label: 'New config', group: null, icon: Route, scope: 'configs.create' }, () => import('../pages/routing/new.tsx')),
  page({ path: '/routing/:slug', label: 'Config', group: null, icon: Route, scope: 'configs.list' }, () => import('../pages/routing/detail.tsx')),
  page({ path: '/guardrails', label: 'Guardrails', group: 'Build', icon: ShieldCheck, scope: 'guardrails.list' }, () => import('../pages/guardrails/page.tsx')),
  page({ path: '/guardrails/new', label: 'New guardrail', group: null, icon: ShieldCheck, scope: 'guardrails.create' }, () => import('../pages/guardrails/new.tsx')),
  page({ path: '/guardrails/:id', label: 'Guardrail', group: null, icon: ShieldCheck, scope: 'guardrails.list' }, () => import('../pages/guardrails/detail.tsx')),
  page({ path: '/fine-tuning', label: 'Fine-tuning', group: 'Train', icon: GraduationCap, scope: 'completions.write', key: 'f' }, () => import('../pages/fine-tuning/page.tsx')),
  page({ path: '/fine-tuning/new', label: 'New fine-tuning job', group: null, icon: GraduationCap, scope: 'completions.write' }, () => import('../pages/fine-tuning/new.tsx')),
  page({ path: '/fine-tuning/:id', label: 'Fine-tuning job', group: null, icon: GraduationCap, scope: 'completions.write' }, () => import('../pages/fine-tuning/detail.tsx')),
  page({ path: '/batches', label: 'Batches', group: 'Train', icon: Layers, scope: 'completions.write' }, () => import('../pages/batches/page.tsx')),
  page({ path: '/batches/:id', label: 'Batch', group: null, icon: Layers, scope: 'completions.write' }, () => import('../pages/batches/detail.tsx')),
  page({ path: '/files', label: 'Files', group: 'Train', icon: Files, scope: 'completions.write' }, () => import('../pages/files/page.tsx')),
  page({ path: '/files/:id', label: 'File', group: null, icon: Files, scope: 'completions.write' }, () => import('../pages/files/detail.tsx')),
  page({ path: '/keys', label: 'API keys', group: 'Access', icon: KeyRound, scope: 'workspace_user_api_keys.list', key: 'k', bar: true }, () => import('../pages/keys/page.tsx')),
  page({ path: '/keys/:id', label: 'API key', group: null, icon: KeyRound, scope: 'workspace_user_api_keys.list' }, () => import('../pages/keys/detail.tsx')),
  page({ path: '/limits', label: 'Budgets & limits', group: 'Access', icon: Gauge, scope: 'policies.list', key: 'l' }, () => import('../pages/limits/page.tsx')),
  page({ path: '/workspaces', label: 'Workspaces', group: 'Access', icon: Building2, scope: 'workspaces.list', key: 'w' }, () => import('../pages/workspaces/page.tsx')),
  page({ path: '/workspaces/:id', label: 'Workspace', group: null, icon: Building2, scope: 'workspaces.list' }, () => import('../pages/workspaces/detail.tsx')),
  page({ path: '/people', label: 'People', group: 'Access', icon: Users, scope: 'organisation_users.list', key: 'u' }, () => import('../pages/people/page.tsx')),
  page({ path: '/providers', label: 'Providers', group: 'Access', icon: Cable, scope: 'workspace_integrations.list' }, () => import('../pages/providers/page.tsx')),
  page({ path: '/providers/:slug', label: 'Account', group: null, icon: Cable, scope: 'workspace_integrations.list' }, () => import('../pages/providers/detail.tsx')),
  page({ path: '/audit', label: 'Audit', group: 'Govern', icon: BookOpenCheck, scope: 'audit_logs.list', key: 'a' }, () => import('../pages/audit/page.tsx')),
  page({ path: '/settings', label: 'Settings', group: 'Govern', icon: Settings, scope: 'organisation_settings.read' }, () => import('../pages/settings/page.tsx')),
  page({ path: '/account', label: 'Your account', group: null, icon: UserRound, scope: null }, () => import('../pages/account.tsx')),
  page({ path: '/me', label: 'Me', group: 'You', icon: UserRound, scope: null, key: 'm' }, () => import('../pages/me/page.tsx')),
];

export const GROUPS: readonly Group[] = ['Home', 'Observe', 'Build', 'Train', 'Access', 'Govern', 'You'];
