/** Uploads with progress, which `fetch` does not tell. */
import type { File as KeptFile } from '../../types/api.ts';
import { ApiError, refused } from './client.ts';

export interface Upload {
  readonly file: File;
  readonly purpose: string;
  readonly csrf: string;
  readonly headers: Readonly<Record<string, string>>;
  /** Of the bytes, from 0 to 1. */
  readonly onProgress: (part: number) => void;
  readonly signal: AbortSignal;
}

/** Sends a file to `POST /v1/files`. Throws `ApiError` for a refusal, a lost connection and an abort. */
export function upload({ file, purpose, csrf, headers, onProgress, signal }: Upload): Promise<KeptFile> {
  const form = new FormData();
  // The purpose goes first: the server then reads the file as it comes.
  form.append('purpose', purpose);
  form.append('file', file);
  const request = new XMLHttpRequest();
  request.open('POST', '/v1/files');
  for (const [name, value] of Object.entries({ ...headers, 'x-csrf-token': csrf })) {
    request.setRequestHeader(name, value);
  }
  request.upload.onprogress = ({ loaded, total }) => onProgress(total === 0 ? 0 : loaded / total);
  signal.addEventListener('abort', () => request.abort());
  return new Promise((resolve, reject) => {
    request.onload = () =>
      request.status >= 200 && request.status < 300
        ? resolve(JSON.parse(request.responseText) as KeptFile)
        : reject(refused(request.status, request.responseText, (name) => request.getResponseHeader(name)));
    request.onerror = () => reject(new ApiError(0, 'The connection was lost. Nothing was kept: send the file again.'));
    request.onabort = () => reject(new ApiError(0, 'You stopped the upload. Nothing was kept.'));
    request.send(form);
  });
}
