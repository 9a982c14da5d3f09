/** People: users and invites. */
import { useState } from 'react';
import type { Operations } from '../../../types/api.ts';
import { answer } from '../../api/client.ts';
import { usePagedList, useWrite } from '../../api/queries.ts';
import { count, date } from '../../app/format.ts';
import { t } from '../../app/i18n.ts';
import { CopyLine } from '../../components/copy.tsx';
import { Tabs } from '../../components/tabs.tsx';
import { useCan, useSession } from '../../shell/session.tsx';
import { useUrl, useZone } from '../../shell/url-state.ts';
import { AsCurl } from '../../ui/curl.tsx';
import { Dialog } from '../../ui/dialog.tsx';
import { FilterBar, useFilters } from '../../ui/filters.tsx';
import { faultsOf } from '../../ui/form.tsx';
import { To } from '../../ui/link.tsx';
import { Badge, PageHead, Refreshing } from '../../ui/page.tsx';
import { Empty, Failure, Loading, NoMatch } from '../../ui/states.tsx';
import { type Column, ListFooter, ListTable } from '../../ui/table.tsx';
import { Change, HandOver } from './change.tsx';
import { Invite } from './invite.tsx';
import { NewLink } from './new-link.tsx';
import { Remove } from './remove.tsx';

type User = Operations['GET /v1/admin/users']['answer']['data'][number];
type Invited = Operations['GET /v1/admin/users/invites']['answer']['data'][number];

const PAGE = 100;
const ROLES = ['owner', 'admin', 'member'].map((value) => ({ value, label: t(value) }));
const USER_FILTERS = [
  { param: 'role', label: t('Role'), options: ROLES },
  { param: 'email', label: t('E-mail address'), hint: t('The whole address') },
];
const INVITE_FILTERS = [
  {
    param: 'status',
    label: t('Status'),
    options: ['pending', 'accepted', 'cancelled', 'expired'].map((value) => ({ value, label: t(value) })),
  },
  { param: 'search', label: t('E-mail address'), hint: t('A part of it') },
];

export function Page() {
  const can = useCan();
  const { get, set } = useUrl();
  const tab = get('tab') === 'invites' ? 'invites' : 'users';
  const tabs = [
    { id: 'users', label: t('Users') },
    { id: 'invites', label: t('Invites') },
  ];
  return (
    <>
      <PageHead
        title={t('People')}
        purpose={t('Who can sign in, what they may do, and who is invited.')}
        actions={
          can('organisation_users.create') && (
            <button type="button" className="button primary" onClick={() => set({ new: '1' })}>
              {t('Invite somebody')}
            </button>
          )
        }
      />
      <Tabs
        label={t('People')}
        tabs={tabs}
        selected={tab}
        onSelect={(id) => set({ tab: id === 'users' ? null : id, role: null, email: null, status: null, search: null })}
      >
        {tab === 'users' ? <Users /> : <Invites />}
      </Tabs>
      {get('new') === '1' && <Invite onClose={() => set({ new: null })} />}
    </>
  );
}

const nameOf = (user: User): string => `${user.first_name} ${user.last_name}`.trim() || user.email;

function Users() {
  const { session } = useSession();
  const zone = useZone();
  const can = useCan();
  const [link, setLink] = useState<User | null>(null);
  const [removed, setRemoved] = useState<User | null>(null);
  const [changed, setChanged] = useState<User | null>(null);
  const [heir, setHeir] = useState<User | null>(null);
  const { active, query: filter, clear } = useFilters(USER_FILTERS);
  const query = { ...filter, page_size: PAGE } as NonNullable<Operations['GET /v1/admin/users']['input']['query']>;
  const { list, rows, total } = usePagedList<User, Operations['GET /v1/admin/users']['answer']>(
    ['GET /v1/admin/users', query],
    (page, signal) => answer('GET /v1/admin/users', { query: { ...query, current_page: page } }, { signal }),
  );
  const acts = (row: User) => (
    <span className="row">
      {can('organisation_users.update') && (
        <button type="button" className="button small" onClick={() => setChanged(row)}>
          {t('Change')}{' '}
          <span className="visually-hidden" translate="no">
            {row.email}
          </span>
        </button>
      )}
      {session.user.role === 'owner' && row.role === 'admin' && (
        <button type="button" className="button small" onClick={() => setHeir(row)}>
          {t('Make owner')}{' '}
          <span className="visually-hidden" translate="no">
            {row.email}
          </span>
        </button>
      )}
      {can('organisation_users.update') && (
        <button type="button" className="button small" onClick={() => setLink(row)}>
          {t('Sign-in link')} <span className="visually-hidden">{t('for {name}', { name: row.email })}</span>
        </button>
      )}
      {can('organisation_users.delete') && row.role !== 'owner' && row.id !== session.user.id && (
        <button type="button" className="button small" onClick={() => setRemoved(row)}>
          {t('Remove')}{' '}
          <span className="visually-hidden" translate="no">
            {row.email}
          </span>
        </button>
      )}
    </span>
  );
  const requests = (row: User) => (
    <To path="/requests" params={{ user_ids: row.id }} title={row.id}>
      {nameOf(row)}
    </To>
  );
  const columns: Column<User>[] = [
    { id: 'name', header: t('Name'), grow: true, cell: requests },
    { id: 'email', header: t('E-mail address'), cell: (row) => row.email },
    { id: 'role', header: t('Role'), cell: (row) => t(row.role) },
    { id: 'workspaces', header: t('Workspaces'), numeric: true, cell: (row) => count(row.workspace_ids.length) },
    { id: 'since', header: t('Since'), cell: (row) => date(row.created_at, zone) },
    { id: 'acts', header: t('Actions'), cell: acts },
  ];
  return (
    <>
      <div className="toolbar" data-key="filter">
        <FilterBar filters={USER_FILTERS} />
        <span data-key="curl">
          <AsCurl call={{ operation: 'GET /v1/admin/users', query }} />
        </span>
      </div>
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isLoading && <Loading what={t('users')} />}
      {list.isSuccess && rows.length === 0 && <NoMatch what={t('users')} filters={active.length} onClear={clear} />}
      {rows.length > 0 && (
        <>
          <Refreshing on={list.isFetching && !list.isFetchingNextPage} />
          <ListTable
            label={t('Users')}
            columns={columns}
            rows={rows}
            keyOf={(row) => row.id}
            card={(row) => ({
              head: requests(row),
              detail: (
                <>
                  <span translate="no">{row.email}</span>
                  <span>{t(row.role)}</span>
                </>
              ),
              side: acts(row),
            })}
          />
          <ListFooter
            shown={rows.length}
            total={total === null ? null : count(total)}
            more={list.hasNextPage}
            loading={list.isFetchingNextPage}
            onMore={() => void list.fetchNextPage()}
          />
        </>
      )}
      {changed !== null && <Change user={changed} onClose={() => setChanged(null)} />}
      {heir !== null && <HandOver user={heir} onClose={() => setHeir(null)} />}
      {link !== null && <SignInLink user={link} onClose={() => setLink(null)} />}
      {removed !== null && <Remove id={removed.id} name={nameOf(removed)} onClose={() => setRemoved(null)} />}
    </>
  );
}

function SignInLink({ user, onClose }: { user: User; onClose: () => void }) {
  const write = useWrite('POST /v1/admin/users/{userId}/sign-in-link');
  const path = { userId: user.id };
  const link = (write.data as { sign_in_link?: string } | undefined)?.sign_in_link;
  return (
    <Dialog title={t('Sign-in link for {name}', { name: nameOf(user) })} onClose={onClose}>
      <p>{t('The link signs in once, within 15 minutes. Give it to this person only.')}</p>
      {link !== undefined && <CopyLine label={t('Link')} value={link} />}
      {write.error && (
        <p className="fault" role="alert">
          {faultsOf(write.error)[0]?.message}
        </p>
      )}
      <div className="row wrap">
        {link === undefined && (
          <button type="button" className="button primary" onClick={() => write.mutate({ path })}>
            {t('Make the link')}
          </button>
        )}
        <button type="button" className="button" onClick={onClose}>
          {t('Close')}
        </button>
        <AsCurl call={{ operation: 'POST /v1/admin/users/{userId}/sign-in-link', path }} />
      </div>
    </Dialog>
  );
}

function Invites() {
  const zone = useZone();
  const can = useCan();
  const { active, query: filter, clear } = useFilters(INVITE_FILTERS);
  const query = { ...filter, page_size: PAGE };
  const [again, setAgain] = useState<Invited | null>(null);
  const cancel = useWrite('DELETE /v1/admin/users/invites/{inviteId}');
  const { list, rows, total } = usePagedList<Invited, Operations['GET /v1/admin/users/invites']['answer']>(
    ['GET /v1/admin/users/invites', query],
    (page, signal) => answer('GET /v1/admin/users/invites', { query: { ...query, current_page: page } }, { signal }),
  );
  const state = (row: Invited) => (
    <Badge tone={row.status === 'pending' ? 'warn' : row.status === 'accepted' ? 'ok' : 'quiet'}>{t(row.status)}</Badge>
  );
  const acts = (row: Invited) =>
    row.status === 'pending' ? (
      <span className="row">
        {can('organisation_users.create') && (
          <button type="button" className="button small" onClick={() => setAgain(row)}>
            {t('New link')}{' '}
            <span className="visually-hidden" translate="no">
              {row.email}
            </span>
          </button>
        )}
        {can('organisation_users.delete') && (
          <button type="button" className="button small" onClick={() => cancel.mutate({ path: { inviteId: row.id } })}>
            {t('Cancel')}{' '}
            <span className="visually-hidden" translate="no">
              {row.email}
            </span>
          </button>
        )}
      </span>
    ) : null;
  const columns: Column<Invited>[] = [
    { id: 'email', header: t('E-mail address'), grow: true, cell: (row) => row.email },
    { id: 'role', header: t('Role'), cell: (row) => t(row.role) },
    { id: 'status', header: t('Status'), cell: state },
    { id: 'ends', header: t('Ends'), cell: (row) => date(row.expires_at, zone) },
    { id: 'acts', header: t('Actions'), cell: acts },
  ];
  return (
    <>
      <div className="toolbar" data-key="filter">
        <FilterBar filters={INVITE_FILTERS} />
        <span data-key="curl">
          <AsCurl call={{ operation: 'GET /v1/admin/users/invites', query }} />
        </span>
      </div>
      {cancel.error && (
        <p className="fault" role="alert">
          {faultsOf(cancel.error)[0]?.message}
        </p>
      )}
      {list.isError && rows.length === 0 && <Failure error={list.error} onRetry={() => void list.refetch()} />}
      {list.isLoading && <Loading what={t('invites')} />}
      {list.isSuccess && rows.length === 0 && active.length > 0 && (
        <NoMatch what={t('invites')} filters={active.length} onClear={clear} />
      )}
      {list.isSuccess && rows.length === 0 && active.length === 0 && (
        <Empty title={t('No invites yet. An invite is a link that you hand over or mail.')} />
      )}
      {rows.length > 0 && (
        <>
          <ListTable
            label={t('Invites')}
            columns={columns}
            rows={rows}
            keyOf={(row) => row.id}
            card={(row) => ({ head: row.email, detail: state(row), side: acts(row) })}
          />
          <ListFooter
            shown={rows.length}
            total={total === null ? null : count(total)}
            more={list.hasNextPage}
            loading={list.isFetchingNextPage}
            onMore={() => void list.fetchNextPage()}
          />
        </>
      )}
      {again !== null && <NewLink invite={again} onClose={() => setAgain(null)} />}
    </>
  );
}
