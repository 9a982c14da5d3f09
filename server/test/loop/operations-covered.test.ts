/** Every operation that takes a body is measured in the event loop: a new one without a case fails here. */
import { describe, expect, it } from 'vitest';
import { OPERATIONS, type OperationId } from '../../src/operations/operation.ts';
import { casesOf, SMALL_BODIES, TAKING_BODIES } from './operation-cases.ts';

/** Bodies above this are no small ones. */
const LARGE = 1024 * 1024;

/** The path of an operation as an expression; the one that takes any path is called below /proxy. */
function pathOf(id: OperationId): RegExp {
  const { path } = OPERATIONS[id];
  if (id === 'proxy') return /^\/proxy\//;
  return new RegExp(`^${path.replace(/^\/v1/, '').replace(/:[^/]+/g, '[^/]+')}$`);
}

describe('the cases of the event loop', () => {
  it('are of all operations that take a body, and of no other', () => {
    const covered = new Set(
      Object.values(OPERATIONS)
        .flatMap(casesOf)
        .map(({ operation }) => operation),
    );
    const wanted = TAKING_BODIES.filter(({ id }) => SMALL_BODIES[id] === undefined);
    expect([...covered].sort()).toEqual(wanted.map(({ id }) => id).sort());
    expect(wanted.length).toBeGreaterThan(15);
  });

  it.each(TAKING_BODIES.filter(({ id }) => SMALL_BODIES[id] === undefined))(
    '$id is called by its own path, with bodies of many megabytes and with heavy ones',
    (operation) => {
      const cases = casesOf(operation);
      const sizes = cases.map(({ body }) => body().length);
      expect(sizes.filter((size) => size > 20 * LARGE).length).toBeGreaterThan(1);
      for (const one of cases) {
        expect(one.path).toMatch(pathOf(operation.id));
        expect(operation.method === 'ANY' ? 'POST' : operation.method).toBe(one.method);
      }
      if (operation.body === 'json' || operation.body === 'optional')
        expect(cases.some(({ body, title }) => (body?.length ?? 0) < LARGE && title.includes('empty lists'))).toBe(
          true,
        );
    },
  );

  it('leave out what is small by a limit that is named', () => {
    for (const [id, why] of Object.entries(SMALL_BODIES)) {
      expect(TAKING_BODIES.map((operation) => operation.id)).toContain(id);
      expect(why).toMatch(/\d+ (?:bytes|KB)/);
    }
  });
});
