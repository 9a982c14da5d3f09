/** The words in which `schema.ts` describes tables. */
export interface Column<T> {
  readonly kind: 'text' | 'int' | 'time' | 'bool' | 'json' | 'sealed';
  readonly nullable: boolean;
  /** Carries only the type. */
  readonly type?: T;
}

export const column =
  <T>(kind: Column<T>['kind']) =>
  (): Column<T> => ({ kind, nullable: false });
export const text = <T extends string = string>(): Column<T> => ({ kind: 'text', nullable: false });
export const int = column<number>('int');
export const time = column<number>('time');
export const bool = column<boolean>('bool');
export const json = <T>(): Column<T> => ({ kind: 'json', nullable: false });
export const sealed = column<string>('sealed');
export const nullable = <T>(inner: Column<T>): Column<T | null> => ({ kind: inner.kind, nullable: true });

export interface Table<
  C extends Record<string, Column<unknown>> = Record<string, Column<unknown>>,
  T extends 'organisation' | 'none' = 'organisation' | 'none',
> {
  /** Columns of the primary key. */
  readonly key: readonly string[];
  /** `organisation`: every statement carries `organisation_id`. `none`: installation-wide, reachable by system code only. */
  readonly tenant: T;
  readonly columns: C;
}

export const table = <const C extends Record<string, Column<unknown>>, const T extends 'organisation' | 'none'>(
  key: readonly (keyof C & string)[],
  tenant: T,
  columns: C,
): Table<C, T> => ({ key, tenant, columns });
