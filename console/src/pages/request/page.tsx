import { useParams } from 'wouter';
import { t } from '../../app/i18n.ts';
import { To } from '../../ui/link.tsx';
import { RequestView } from './view.tsx';

export function Page() {
  const { id = '' } = useParams<{ id: string }>();
  return (
    <>
      <p className="crumb">
        <To path="/requests">← {t('Requests')}</To>
      </p>
      <RequestView id={id} />
    </>
  );
}
