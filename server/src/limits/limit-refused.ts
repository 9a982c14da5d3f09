import { SluiceError } from '../kernel/errors.ts';
import type { RefusedBy } from '../store/limit-types.ts';

/** A refusal that knows which limit it came from, for the record of the request. */
export class LimitRefused extends SluiceError {
  readonly by: RefusedBy;
  readonly unpriced: boolean = false;

  constructor(
    kind: 'usage_limit_exceeded' | 'rate_limit_exceeded',
    message: string,
    by: RefusedBy,
    options?: ConstructorParameters<typeof SluiceError>[2],
  ) {
    super(kind, message, options);
    this.by = by;
  }
}
