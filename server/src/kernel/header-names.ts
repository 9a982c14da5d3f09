/**
 * Headers that open instance-metadata services of clouds. Nobody may have them sent to an upstream: neither a request or
 * config that forwards headers, nor saved custom headers. Lower case. One list, because a name missing from a second
 * copy would be a way in.
 */
export const METADATA_HEADERS = [
  'metadata',
  'metadata-flavor',
  'x-google-metadata-request',
  'x-aws-ec2-metadata-token',
  'x-aws-ec2-metadata-token-ttl-seconds',
  'x-identity-header',
  'secret',
] as const;
