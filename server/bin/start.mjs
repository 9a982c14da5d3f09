// `npm start`: makes the console and the built server current, then serves. A supervisor runs this file with node, so that its signals arrive here.
// An old Node.js goes straight to its refusal.
if (Number(process.versions.node.split('.')[0]) >= 24) {
  const { withFewArenas } = await import('./few-arenas.mjs');
  withFewArenas();
  const script = new URL('../../console/ensure-built.mjs', import.meta.url);
  const builder = new URL('built.mjs', import.meta.url);
  const [{ mayBeBuilt }, { builtMain }] = await Promise.all([import(script), import(builder)]);
  const wanted = [...(mayBeBuilt() ? [script] : []), ...(builtMain() === null ? [builder] : [])];
  if (wanted.length > 0) {
    // In processes that end: Vite would stay in this one's memory, 200 MB, for as long as the server runs.
    const { spawn } = await import('node:child_process');
    const { once } = await import('node:events');
    const { fileURLToPath } = await import('node:url');
    const build = (url) => once(spawn(process.execPath, [fileURLToPath(url)], { stdio: 'inherit' }), 'exit');
    await Promise.all(wanted.map(build));
  }
  const main = builtMain();
  // The processes of several workers run what this one runs.
  if (main === null) delete process.env.SLUICE_BUILT_MAIN;
  else process.env.SLUICE_BUILT_MAIN = main;
}

// npm passes a signal to the shell it started, which ends at once without telling us, and npm ends with it. A new parent
// means that this happened. Without npm it means nothing: a shell that started a server in the background may go.
if (process.env.npm_lifecycle_event !== undefined) {
  const parent = process.ppid;
  const watch = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(watch);
    console.error(
      `npm has ended, and process ${process.pid} may still be finishing requests. Under a supervisor, start Sluice without npm (docs/guides/operations.md).`,
    );
    process.kill(process.pid, 'SIGTERM');
  }, 250);
  watch.unref();
}

process.argv.splice(2, 0, 'serve');
await import('./sluice.mjs');
