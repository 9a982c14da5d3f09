/**
 * Every field of create requests in shapes A, B and C × every provider that trains: it reaches upstream at a stated
 * place with a stated value, or is refused with 400 by name. There is no third outcome.
 */
import { readdirSync } from 'node:fs';
import { afterAll, describe, expect, it } from 'vitest';
import { SluiceError } from '../../src/kernel/errors.ts';
import { isObject, type JsonObject } from '../../src/kernel/json.ts';
import type { JobRequest } from '../../src/operations/training.ts';
import { PROVIDERS } from '../../src/providers/catalog.ts';
import type { JobsAdapter, PreparedCall } from '../../src/providers/training.ts';
import { readJob } from '../../src/training/requests.ts';
import { adapterContext, type TestContext } from '../support/adapter-context.ts';
import { type FieldSubject, requestFor, requestWithout, shapeB, shapeC } from './fields/inputs.ts';
import { FIELD_NAMES, type FieldFate, type FieldName } from './fields/names.ts';

const isSubject = (value: unknown): value is FieldSubject => isObject(value) && 'provider' in value && 'table' in value;

const subjects: [string, FieldSubject][] = [];
for (const file of readdirSync(new URL('./fields/', import.meta.url))) {
  const exported: Record<string, unknown> = await import(`./fields/${file}`);
  for (const [name, value] of Object.entries(exported)) if (isSubject(value)) subjects.push([name, value]);
}

const SEVEN = ['azure-openai', 'bedrock', 'fireworks-ai', 'mistral-ai', 'openai', 'together-ai', 'vertex-ai'];

const contexts: TestContext[] = [];
function contextOf(subject: FieldSubject, dropParams: readonly string[] = []): TestContext {
  const base = 'https://upstream.example/v1';
  const context = adapterContext({ base, now: () => 1_767_225_600_000, ...subject.context, dropParams });
  contexts.push(context);
  return context;
}

afterAll(async () => {
  for (const context of contexts) {
    expect(context.calls).toEqual([]);
    await context.close();
  }
});

function jobsOf(subject: FieldSubject): JobsAdapter {
  const jobs = PROVIDERS.get(subject.provider)?.training?.jobs;
  if (jobs === undefined) throw new Error(`${subject.provider} has no jobs`);
  return jobs;
}

/** What is sent, as one tree: the body, its query under `query`, its path under `path`. */
function treeOf(prepared: PreparedCall): JsonObject {
  const url = new URL(prepared.url);
  const body = JSON.parse(JSON.stringify(prepared.body)) as JsonObject;
  return { ...body, query: Object.fromEntries(url.searchParams), path: url.pathname };
}

function at(tree: unknown, place: string): unknown {
  let value = tree;
  for (const name of place.split('.')) {
    if (Array.isArray(value)) value = value[Number(name)];
    else if (isObject(value)) value = value[name];
    else return undefined;
  }
  return value;
}

/** Every value of a tree by its path. */
function leavesOf(tree: unknown, path = '', into = new Map<string, unknown>()): Map<string, unknown> {
  if (typeof tree !== 'object' || tree === null) return into.set(path, tree);
  const entries = Object.entries(tree);
  for (const [name, value] of entries) leavesOf(value, path === '' ? name : `${path}.${name}`, into);
  return into;
}

/** Values that are made anew for every request: names from random ids, tokens of repetition. */
const MADE = new Set(['clientRequestToken', 'jobName', 'query.supervisedFineTuningJobId']);

function refusalOf(act: () => unknown): SluiceError {
  try {
    act();
  } catch (error) {
    if (error instanceof SluiceError) return error;
    throw error;
  }
  throw new Error('it was not refused');
}

function expectFate(subject: FieldSubject, name: FieldName, job: JobRequest): void {
  const fate: FieldFate = subject.table[name];
  const jobs = jobsOf(subject);
  if ('refused' in fate) {
    const error = refusalOf(() => jobs.prepare(job, contextOf(subject)));
    expect(error).toMatchObject({
      kind: 'unsupported_parameter',
      param: fate.refused,
    });
    expect(error.message).toContain(fate.refused.slice(fate.refused.lastIndexOf('.') + 1));
    return;
  }
  expect(at(treeOf(jobs.prepare(job, contextOf(subject))), fate.place)).toEqual(fate.value);
}

/** Rows whose value every request has: nothing to compare them with. */
const ALWAYS: ReadonlySet<FieldName> = new Set(['model', 'training_file', 'method.type=supervised']);

it('covers the seven providers that train, and no provider that trains is left out', () => {
  const covered = new Set(subjects.map(([, subject]) => subject.provider));
  expect([...covered].sort()).toEqual(SEVEN);
  const training = [...PROVIDERS.values()].filter((provider) => provider.training?.jobs !== undefined);
  expect(training.map(({ id }) => id).filter((id) => id !== 'sandbox' && !covered.has(id))).toEqual([]);
});

it('has a row for every member of shapes A, B and C', () => {
  const rows = new Set<string>(
    FIELD_NAMES.map((name) => name.replace(/^method\.type=.*/, 'method').split('=')[0] ?? ''),
  );
  const everything: JsonObject = {
    ...requestFor({}, 'beta').body,
    ...requestFor({}, 'validation_file').body,
    ...requestFor({}, 'job_name').body,
    ...requestFor({}, 'role_arn').body,
    ...requestFor({}, 'output_file').body,
    ...requestFor({}, 'seed').body,
    ...requestFor({}, 'integrations').body,
    ...requestFor({}, 'metadata').body,
  };
  expect(Object.keys(everything).filter((name) => !rows.has(name))).toEqual([]);
  for (const [, subject] of subjects) expect(Object.keys(subject.table).sort()).toEqual([...FIELD_NAMES].sort());
});

describe.each(subjects)('%s', (_, subject) => {
  const jobs = jobsOf(subject);

  it.each(FIELD_NAMES)('%s reaches the provider at its place, or is refused by name', (name) => {
    expectFate(subject, name, requestFor(subject, name));
  });

  it.each(FIELD_NAMES.filter((name) => !ALWAYS.has(name)))('%s is what puts the value there', (name) => {
    const fate = subject.table[name];
    if ('refused' in fate) {
      // What is refused is the field alone: the request without it is taken.
      jobs.prepare(requestWithout(subject, name), contextOf(subject));
      return;
    }
    const tree = treeOf(jobs.prepare(requestWithout(subject, name), contextOf(subject)));
    expect(at(tree, fate.place)).not.toEqual(fate.value);
  });

  it.each(FIELD_NAMES)('%s listed in drop_params is left out where it is refused, and the rest is sent', (name) => {
    const fate = subject.table[name];
    if (!('refused' in fate)) return;
    if (fate.refused === 'method.type') {
      // What is trained is no detail: rows of preferences are not trained as something else.
      refusalOf(() => jobs.prepare(requestFor(subject, name), contextOf(subject, [fate.refused])));
      return;
    }
    const dropped = leavesOf(treeOf(jobs.prepare(requestFor(subject, name), contextOf(subject, [fate.refused]))));
    const without = leavesOf(treeOf(jobs.prepare(requestWithout(subject, name), contextOf(subject))));
    // "auto" stands in for a number the request would have had: without it there is none.
    const number = name === 'n_epochs=auto' ? subject.table.n_epochs : null;
    if (number !== null && 'place' in number) without.delete(number.place);
    for (const made of MADE) {
      dropped.delete(made);
      without.delete(made);
    }
    expect(Object.fromEntries(dropped)).toEqual(Object.fromEntries(without));
  });

  // The shapes themselves know no "auto": see below.
  const callers = FIELD_NAMES.filter((name) => name !== 'n_epochs=auto');

  it.each(callers)('%s has the same fate in a caller’s body of shape A or B', (name) => {
    expectFate(subject, name, readJob(shapeB(requestFor(subject, name)), new Set()).job);
  });

  it.each(callers)(
    '%s has the same fate in a caller’s body of shape C, by provider_options where it can be',
    (name) => {
      const { job } = readJob(shapeC(requestFor(subject, name)), new Set());
      expect(job).toMatchObject({ shape: 'C', model: 'name-of-ours' });
      expectFate(subject, name, job);
    },
  );

  it('takes "auto" of the older top-level hyperparameters as it takes it elsewhere, under that name', () => {
    const { method: _method, ...rest } = shapeB(requestFor(subject, 'n_epochs=auto'));
    const hyperparameters = { n_epochs: 'auto', learning_rate_multiplier: 1, batch_size: 1 };
    const { job } = readJob({ ...rest, hyperparameters }, new Set());
    const fate = subject.table['n_epochs=auto'];
    if ('refused' in fate) {
      const error = refusalOf(() => jobs.prepare(job, contextOf(subject)));
      expect(error).toMatchObject({ kind: 'unsupported_parameter', param: 'hyperparameters.n_epochs' });
    } else if (fate.value === undefined || isObject(fate.value)) {
      expect(at(treeOf(jobs.prepare(job, contextOf(subject))), fate.place)).toEqual(fate.value);
    } else {
      expect(JSON.stringify(jobs.prepare(job, contextOf(subject)).body)).toContain('"n_epochs":"auto"');
    }
  });

  it('names a member of method that nobody knows, or passes it on', () => {
    const request = requestFor(subject, 'training_file');
    const body = shapeB(request);
    const hyperparameters = { ...request.hyperparameters, warmth: 0.5 };
    const { job } = readJob({ ...body, method: { type: 'supervised', supervised: { hyperparameters } } }, new Set());
    let sent: PreparedCall;
    try {
      sent = jobs.prepare(job, contextOf(subject));
    } catch (error) {
      expect(error).toMatchObject({
        kind: 'unsupported_parameter',
        param: 'method.supervised.hyperparameters.warmth',
      });
      return;
    }
    expect(at(sent.body, 'method.supervised.hyperparameters.warmth')).toBe(0.5);
  });
});
