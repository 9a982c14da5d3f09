import { t } from '../../app/i18n.ts';
import { FirstRequest } from '../first-request.tsx';

/** Requests by hand, at any time. */
export const Page = () => <FirstRequest title={t('Playground')} />;
