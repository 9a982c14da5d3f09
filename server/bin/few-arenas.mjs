/**
 * Puts this process in its own place again with `MALLOC_ARENA_MAX=2`, under the same id, arguments and open streams. The C
 * library of Linux reads that variable only when a program begins. It keeps freed memory for each thread apart otherwise:
 * 8 MB of an idle server, which hold nothing. Costs about 40 ms of a start.
 *
 * Does nothing where the variable is set already, on other systems, or below a parent with a channel, which would be lost.
 */
export function withFewArenas() {
  if (process.platform !== 'linux' || process.env.MALLOC_ARENA_MAX !== undefined) return;
  if (process.channel !== undefined || process.execve === undefined) return;
  const args = [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
  process.execve(process.execPath, args, { ...process.env, MALLOC_ARENA_MAX: '2' });
}
