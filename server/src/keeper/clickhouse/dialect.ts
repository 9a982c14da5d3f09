/** How statements of `log-sql.ts` are written for ClickHouse. */
import type { Dialect, SqlValue } from '../log-sql.ts';
import { knownOf } from './table.ts';

/** Parameters have types. */
function typeOf(value: SqlValue): string {
  switch (typeof value) {
    case 'string':
      return 'String';
    case 'bigint':
      return 'Int64';
    case 'number':
      return 'Float64';
    case 'boolean':
      return 'Bool';
    default:
      return `Array(${typeof value[0] === 'bigint' ? 'Int64' : 'String'})`;
  }
}

export const clickHouse: Dialect = {
  // Wide columns are read for the rows of a page only: else for each row that may be one.
  pageInTwoSteps: true,
  parameter: (n, value) => `{p${n}:${typeOf(value)}}`,
  // One parameter, whatever its length.
  set: (values, add) => add(values),
  shown: ({ name, type }) => (type === 'map' ? `"${name}", "${knownOf(name)}"` : `"${name}"`),
  metadataValue: (key) => `if(mapContains("metadata", ${key}), "metadata"[${key}], NULL)`,
  differs: (column, value) => `ifNull(${column} <> ${value}, TRUE)`,
  bucket: (bounds, add) => {
    const [first, last] = [bounds[0] ?? 0n, bounds.at(-1) ?? 0n];
    const all = add(bounds);
    const places = add(bounds.map((_, place) => BigInt(place)));
    const place = `transform(roundDown("time", ${all}), ${all}, ${places})`;
    return `if("time" < ${add(first)} OR "time" >= ${add(last)}, NULL, ${place})`;
  },
  // Of a column that is never null, the sum of nothing would be 0.
  measured: (column) => `toNullable(${column})`,
  // Each with the weight 1: that of them which goes by the nearest rank.
  quantile: (column, share, filter) => `quantileExactWeighted(${share})(${column}, 1)${filter}`,
  approximateQuantile: (column, share, filter) => `quantileTDigest(${share})(${column})${filter}`,
  groupPage: (grouped, order, limit, offset) => {
    // Common table expressions are computed once for each mention. The row of all records is the first.
    const whole = `"whole" DESC, ${order}`;
    const numbered = `SELECT *, countIf("whole" = 0) OVER () AS "groups", row_number() OVER (ORDER BY ${whole}) AS "place" FROM (${grouped})`;
    const from = offset === null ? '1' : `1 + ${offset}`;
    const upTo = limit === null ? '' : ` AND "place" <= ${from} + ${limit}`;
    return `SELECT * FROM (${numbered}) WHERE "whole" <> 0 OR ("place" > ${from}${upTo}) ORDER BY "place"`;
  },
};
