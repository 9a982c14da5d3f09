/** Fields of create requests in shapes A, B and C that every provider must send on or refuse by name. */
export const FIELD_NAMES = [
  'model',
  'training_file',
  'validation_file',
  'suffix',
  'method.type=supervised',
  'method.type=dpo',
  'n_epochs',
  'n_epochs=auto',
  'learning_rate_multiplier',
  'batch_size',
  'beta',
  'job_name',
  'role_arn',
  'output_file',
  'seed',
  'integrations',
  'metadata',
  'unknown',
] as const;

export type FieldName = (typeof FIELD_NAMES)[number];

/** Where a field arrives at the provider and as what, or the `param` of the 400 that refuses it. */
export type FieldFate = { readonly place: string; readonly value: unknown } | { readonly refused: string };

export type FieldTable = Readonly<Record<FieldName, FieldFate>>;
