/** What a keeper asks its server of the files of all nodes: names of calls, the same on both sides. */
import type { LogFile, LogFileNews, SharedLogFiles } from './catalog.ts';
import type { Channel } from './messages.ts';

/** The keeper's side. */
export function sharedOver(channel: Channel): SharedLogFiles {
  const nothing = async (answer: Promise<unknown>) => void (await answer);
  return {
    news: (since) => channel.call('files.news', since) as Promise<LogFileNews>,
    upload: (id, path) => nothing(channel.call('files.upload', id, path)),
    prepare: (file, path) => nothing(channel.call('files.prepare', file, path)),
    download: (id, path) => channel.call('files.download', id, path) as Promise<boolean>,
    lead: () => channel.call('files.lead') as Promise<boolean>,
    announce: (completeTo) => nothing(channel.call('files.announce', completeTo)),
  };
}

/** The server's side. */
export function sharedAnswers(shared: SharedLogFiles | null): Readonly<Record<string, (...args: never[]) => unknown>> {
  if (shared === null) return {};
  return {
    'files.news': (since: number | null) => shared.news(since),
    'files.upload': (id: string, path: string) => shared.upload(id, path),
    'files.prepare': (file: LogFile, path: string) => shared.prepare(file, path),
    'files.download': (id: string, path: string) => shared.download(id, path),
    'files.lead': () => shared.lead(),
    'files.announce': (completeTo: number | null) => shared.announce(completeTo),
  };
}
