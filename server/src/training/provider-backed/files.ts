/** Files at a provider. */
import { SluiceError } from '../../kernel/errors.ts';
import type { FileObject } from '../../operations/training.ts';
import type { ObjectAnswer, ObjectCall } from '../../runtime/object-call.ts';
import { json } from '../answer.ts';
import { invalid } from '../fields.ts';
import { queryOf, readLimit, unknownAfter } from '../paging.ts';
import type { TrainingServices } from '../services.ts';
import { readUpload, type Upload } from '../upload.ts';
import { withOwnLines } from './line-check.ts';
import { about, guarded, namedAccount, ownId, type ProviderAccess, part, providerAccess } from './provider-access.ts';
import { inModelFormat } from './upload-rows.ts';

const MAX_LIST = 10_000;

export class ProviderFiles {
  readonly #services: TrainingServices;

  constructor(services: TrainingServices) {
    this.#services = services;
  }

  #run(call: ObjectCall, run: (side: ProviderAccess) => Promise<ObjectAnswer>): Promise<ObjectAnswer> {
    const account = namedAccount(call);
    return guarded(account, () => run(providerAccess(this.#services, call, account)));
  }

  upload(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#run(call, async (side) => {
      queryOf(call.query, []);
      const files = part(side, call, 'files');
      const upload = await readUpload(call, this.#services, files.needsBytes === true, files.takesFields);
      let sent = upload;
      let kept: string | null = null;
      try {
        if (!files.purposes.has(upload.purpose)) {
          throw new SluiceError(
            'unsupported_parameter',
            `Provider ${side.account.provider.id} does not know files with the purpose ${upload.purpose}; it knows ${[...files.purposes].join(', ')}.`,
            { param: 'purpose' },
          );
        }
        const wanted = side.ownership === null ? null : (files.plannedId?.(upload.filename, side.context) ?? null);
        if (wanted !== null) {
          if ((await side.ownership?.reserve(wanted)) === false) throw occupied();
          kept = wanted;
        }
        sent = withOwnLines(inModelFormat(upload, side, call, this.#services), side);
        const file = await files.upload(sent, side.context);
        if (!sent.complete()) {
          throw (
            sent.failed() ?? new SluiceError('upstream_invalid', 'The provider answered before it had the whole file.')
          );
        }
        const foreign = await side.ownership?.claim('file', [file.id]);
        if (foreign !== undefined && foreign.length > 0) throw occupied();
        return json(file);
      } catch (error) {
        throw sent.failed() ?? error;
      } finally {
        await closed(sent);
        if (kept !== null) await side.ownership?.release(kept);
      }
    });
  }

  list(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#run(call, async (side) => {
      const { purpose, after, limit, order } = queryOf(call.query, ['purpose', 'after', 'limit', 'order']);
      const files = part(side, call, 'files');
      const most = limit === undefined ? MAX_LIST : readLimit(limit, MAX_LIST);
      if (order !== undefined && order !== 'asc' && order !== 'desc')
        throw invalid('order', 'order must be asc or desc.');
      let all: readonly FileObject[] = [];
      if (side.ownership === null || (await side.ownership.count('file')) > 0) {
        all = await files.list(purpose ?? null, side.context);
        if (side.ownership !== null && all.length > 0) {
          const owned = await side.ownership.owned(
            'file',
            all.map((file) => file.id),
          );
          all = all.filter((file) => owned.has(file.id));
        }
      }
      if (purpose !== undefined) all = all.filter((file) => file.purpose === purpose);
      if (order !== undefined) {
        all = [...all].sort((a, b) => (order === 'asc' ? a.created_at - b.created_at : b.created_at - a.created_at));
      }
      const at = after === undefined ? -1 : all.findIndex((file) => file.id === after);
      if (after !== undefined && at < 0) throw unknownAfter();
      const data = all.slice(at + 1, at + 1 + most);
      // Clients that page by themselves ask for more unless the answer says that there is none.
      return json({ object: 'list', data, has_more: at + 1 + data.length < all.length });
    });
  }

  retrieve(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, id) => json(await part(side, call, 'files').retrieve(id, side.context)));
  }

  remove(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, id) => {
      await part(side, call, 'files').remove(id, side.context);
      await side.ownership?.forget('file', id);
      return json({ id, object: 'file', deleted: true });
    });
  }

  content(call: ObjectCall): Promise<ObjectAnswer> {
    return this.#one(call, async (side, id) => {
      const content = await part(side, call, 'files').content(id, side.context);
      return {
        status: 200,
        // The type is what the uploader called it.
        headers: ['content-type', content.contentType, 'x-content-type-options', 'nosniff'],
        body: content.stream,
        length: content.bytes,
      };
    });
  }

  #one(call: ObjectCall, run: (side: ProviderAccess, id: string) => Promise<ObjectAnswer>): Promise<ObjectAnswer> {
    return this.#run(call, async (side) => {
      queryOf(call.query, []);
      part(side, call, 'files');
      const id = await ownId(side, 'file', call.params.file_id ?? '');
      return about('file', () => run(side, id));
    });
  }
}

function occupied(): SluiceError {
  return new SluiceError('conflict', 'An object with this name exists already; choose another one.', { param: 'file' });
}

async function closed(upload: Upload): Promise<void> {
  await upload.close().catch(() => undefined);
}
