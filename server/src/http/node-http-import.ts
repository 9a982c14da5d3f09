/**
 * `node:http`, without what an `import` of it costs: that reads every export at once, and three of them are getters that
 * load the client behind the global `fetch`, 60 ms of CPU and 6 MB that no start needs.
 */
export const { createServer, IncomingMessage, ServerResponse } = process.getBuiltinModule('node:http');
