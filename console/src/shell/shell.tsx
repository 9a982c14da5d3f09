/** The frame around every page of the console: navigation, workspace, palette, and what is said over all pages. */
import { QueryClientProvider } from '@tanstack/react-query';
import { LogOut, Menu, Search } from 'lucide-react';
import { Component, type ReactNode, Suspense, useCallback, useMemo, useState } from 'react';
import { Route, Router, Switch } from 'wouter';
import { ApiError, getSession, type Session, signOut } from '../api/client.ts';
import { makeQueryClient } from '../api/queries.ts';
import { t } from '../app/i18n.ts';
import { Logo } from '../components/logo.tsx';
import { Notice } from '../components/notice.tsx';
import { PageHeading } from '../components/page-heading.tsx';
import { Dialog } from '../ui/dialog.tsx';
import { To } from '../ui/link.tsx';
import { Failure, Loading } from '../ui/states.tsx';
import { KeyboardHelp, useKeyboard } from './keyboard.tsx';
import { GROUPS, PAGES, type Page } from './pages.ts';
import { Palette } from './palette.tsx';
import { SessionProvider, useCan, useSession } from './session.tsx';
import { ThemePicker } from './theme-picker.tsx';
import { useUrl, useWorkspace } from './url-state.ts';
import { useCurrentPage } from './use-current-page.ts';

export function Shell({ session: first, onSignedOut }: { session: Session; onSignedOut: () => void }) {
  const [session, setSession] = useState(first);
  const [ended, setEnded] = useState(false);
  const end = useCallback(() => setEnded(true), []);
  const client = useMemo(() => makeQueryClient(end), [end]);
  const refresh = useCallback(async () => {
    const found = await getSession();
    if (found === null) throw new ApiError(401, t('You are not signed in yet.'));
    setSession(found);
    setEnded(false);
  }, []);
  const leave = useCallback(async () => {
    await signOut(session);
    client.clear();
    onSignedOut();
  }, [session, client, onSignedOut]);
  const context = useMemo(() => ({ session, refresh, end, signOut: leave }), [session, refresh, end, leave]);
  return (
    <QueryClientProvider client={client}>
      <SessionProvider value={context}>
        <Router base="/console">
          <Frame />
          {ended && <SessionOver onBack={() => client.invalidateQueries()} />}
        </Router>
      </SessionProvider>
    </QueryClientProvider>
  );
}

function Frame() {
  const [dialog, setDialog] = useState<'palette' | 'help' | 'more' | null>(null);
  const close = useCallback(() => setDialog(null), []);
  useKeyboard(setDialog);
  const page = useCurrentPage();
  return (
    <>
      <a className="skip" href="#main">
        {t('Skip to the content')}
      </a>
      <div className="frame">
        <aside className="rail" aria-label={t('Console')}>
          <div className="rail-head">
            <Logo />
          </div>
          <Navigation />
          <Who />
        </aside>
        <div className="stage">
          <header className="top">
            <span className="top-logo">
              <Logo />
            </span>
            <WorkspaceSwitcher />
            <button type="button" className="search-button" onClick={() => setDialog('palette')}>
              <Search size={16} aria-hidden="true" />
              <span>{t('Search or go to…')}</span>
              <span className="kbd">Ctrl K</span>
            </button>
          </header>
          <main id="main" tabIndex={-1} className="content">
            <Pages key={page?.path} />
          </main>
        </div>
        <BottomBar onMore={() => setDialog('more')} />
      </div>
      {dialog === 'palette' && <Palette onClose={close} onHelp={() => setDialog('help')} />}
      {dialog === 'help' && <KeyboardHelp onClose={close} />}
      {dialog === 'more' && (
        <Dialog title={t('All pages')} onClose={close}>
          <Navigation onGo={close} />
          <Who />
          <button type="button" className="button" onClick={close}>
            {t('Close')}
          </button>
        </Dialog>
      )}
    </>
  );
}

function Pages() {
  const can = useCan();
  return (
    <Boundary>
      <Suspense fallback={<Loading what={t('the page')} />}>
        <Switch>
          {PAGES.filter(({ scope }) => can(scope)).map(({ path, view: View }) => (
            <Route key={path} path={path}>
              <View />
            </Route>
          ))}
          <Route>
            <NotFound />
          </Route>
        </Switch>
      </Suspense>
    </Boundary>
  );
}

function NotFound() {
  const page = useCurrentPage();
  return (
    <>
      <PageHeading>{t('Not found or not visible to you')}</PageHeading>
      <p className="lead">
        {page?.scope
          ? t('You can see {page} when an admin gives you {scope}.', { page: t(page.label), scope: page.scope })
          : t('The console has no page at this address.')}
      </p>
      <p className="after">
        <To path="/">{t('Go to the overview')}</To>
      </p>
    </>
  );
}

/** A page that breaks leaves the frame alive. */
class Boundary extends Component<{ children: ReactNode }, { error: unknown }> {
  override state: { error: unknown } = { error: null };
  static getDerivedStateFromError(error: unknown) {
    return { error };
  }
  override render() {
    if (this.state.error === null) return this.props.children;
    return (
      <>
        <PageHeading>{t('This page broke')}</PageHeading>
        <Failure error={this.state.error} onRetry={() => this.setState({ error: null })} />
      </>
    );
  }
}

function Navigation({ onGo }: { onGo?: () => void }) {
  const can = useCan();
  const current = useCurrentPage();
  const base = (page: Page) =>
    current?.path === page.path || (page.path !== '/' && current?.path.startsWith(`${page.path}/`));
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: links inside bring their own keys
    <nav aria-label={t('Pages')} className="nav" onClick={onGo}>
      {GROUPS.map((group) => {
        const pages = PAGES.filter((page) => page.group === group && can(page.scope));
        if (pages.length === 0) return null;
        return (
          <div key={group} className="nav-group">
            {group !== 'Home' && <p className="nav-title">{t(group)}</p>}
            <ul>
              {pages.map((page) => (
                <li key={page.path}>
                  <To path={page.path} className="nav-link" current={base(page) ?? false}>
                    <page.icon size={17} aria-hidden="true" /> {t(page.label)}
                  </To>
                </li>
              ))}
            </ul>
          </div>
        );
      })}
    </nav>
  );
}

function Who() {
  const { session, signOut: leave } = useSession();
  const [failure, setFailure] = useState<string | null>(null);
  const onClick = () =>
    leave().catch((error: unknown) => setFailure(error instanceof Error ? error.message : String(error)));
  return (
    <div className="rail-who">
      {failure && <Notice tone="bad" title={failure} />}
      <ThemePicker />
      <span className="rail-email" title={session.organisation.name} translate="no">
        {session.user.email}
      </span>
      <div className="row">
        <To path="/account">{t('Account')}</To>
        <button type="button" className="button small" onClick={() => void onClick()}>
          <LogOut size={14} aria-hidden="true" /> {t('Sign out')}
        </button>
      </div>
    </div>
  );
}

function WorkspaceSwitcher() {
  const { session } = useSession();
  const { set } = useUrl();
  const chosen = useWorkspace();
  // Members have their rights in workspaces, one at a time.
  const all = session.user.role !== 'member';
  if (session.workspaces.length === 0) return <span className="muted">{t('No workspace yet')}</span>;
  return (
    <label className="switcher">
      <span className="visually-hidden">{t('Workspace')}</span>
      <select
        id="workspace-switcher"
        value={chosen?.slug ?? (all ? '' : session.workspaces[0]?.slug)}
        onChange={(event) => set({ ws: event.target.value || null, cursor: null })}
      >
        {all && <option value="">{t('All workspaces')}</option>}
        {session.workspaces.map(({ slug, name }) => (
          <option key={slug} value={slug} translate="no">
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}

function BottomBar({ onMore }: { onMore: () => void }) {
  const can = useCan();
  const current = useCurrentPage();
  return (
    <nav className="bottom" aria-label={t('Main pages')}>
      {PAGES.filter((page) => page.bar && can(page.scope)).map((page) => (
        <To key={page.path} path={page.path} className="bottom-link" current={current?.path === page.path}>
          <page.icon size={20} aria-hidden="true" />
          <span>{t(page.label)}</span>
        </To>
      ))}
      <button type="button" className="bottom-link" onClick={onMore}>
        <Menu size={20} aria-hidden="true" />
        <span>{t('More')}</span>
      </button>
    </nav>
  );
}

/** Over the page, whose state stays. */
function SessionOver({ onBack }: { onBack: () => void }) {
  const { refresh } = useSession();
  const [failure, setFailure] = useState<string | null>(null);
  const again = async () => {
    try {
      await refresh();
      onBack();
    } catch (error) {
      setFailure(error instanceof Error ? error.message : String(error));
    }
  };
  return (
    <Dialog title={t('Your session has ended')} closable={false} onClose={() => undefined}>
      <p>{t('Sign in in a new tab, then come back: this page is as you left it.')}</p>
      {failure && <Notice tone="bad" title={failure} />}
      <div className="row wrap">
        <a className="button primary" href="/console/sign-in" target="_blank" rel="noreferrer">
          {t('Sign in again')}
        </a>
        <button type="button" className="button" onClick={() => void again()}>
          {t('I have signed in')}
        </button>
      </div>
    </Dialog>
  );
}
