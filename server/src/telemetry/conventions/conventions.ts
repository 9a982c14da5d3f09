/** The versions of OpenTelemetry's conventions of generative AI that Sluice knows. */
import { LATEST } from './latest.ts';
import { V1_41 } from './v1-41.ts';

/** Names of attributes, by what Sluice calls them. */
export type AttributeNames = Readonly<Record<keyof typeof V1_41.attributes, string>>;

/** As `OTEL_SEMCONV_STABILITY_OPT_IN` chooses: `latest` by `gen_ai_latest_experimental`, else what dashboards know. */
export type ConventionsVersion = 'v1.41' | 'latest';

export const ATTRIBUTES: Readonly<Record<ConventionsVersion, AttributeNames>> = {
  'v1.41': V1_41.attributes,
  latest: LATEST.attributes,
};
