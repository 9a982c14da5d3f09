import type { JsonObject } from '../../kernel/json.ts';
import { type Answer, jsonAnswer } from './answer.ts';
import { BEHAVIOURS, parseModelName } from './model.ts';
import { Problem } from './problem.ts';

/** 2026-01-01, the same for all: the models are made up. */
const CREATED = 1_767_225_600;

const modelObject = (id: string): JsonObject => ({
  id,
  object: 'model',
  created: CREATED,
  owned_by: 'sandbox',
  system_fingerprint: 'sandbox',
});

/** `GET /models`: the behaviours. Any other name is answered as well, but not listed. */
export function listModels(): Answer {
  return jsonAnswer(200, { object: 'list', data: Object.keys(BEHAVIOURS).map(modelObject) });
}

/** `GET /models/:model`; behaviours may carry parameters. */
export function getModel(encoded: string): Answer {
  let id: string;
  try {
    id = decodeURIComponent(encoded);
  } catch {
    id = encoded;
  }
  const { behaviour, name } = parseModelName(id);
  if (behaviour === null) {
    throw new Problem(
      404,
      `The model '${id.slice(0, 100)}' does not exist. The sandbox lists its models at /models; it answers calls to any other name too.`,
      {
        param: 'model',
        code: 'model_not_found',
      },
    );
  }
  return jsonAnswer(200, modelObject(name));
}
