// `npm start`: makes the console current, then serves. A supervisor runs this file with node, so that its signals arrive here.
// An old Node.js goes straight to its refusal.
if (Number(process.versions.node.split('.')[0]) >= 24) {
  const { withFewArenas } = await import('./few-arenas.mjs');
  withFewArenas();
  const { fileURLToPath } = await import('node:url');
  const script = new URL('../../console/ensure-built.mjs', import.meta.url);
  const { mayBeBuilt } = await import(script);
  if (mayBeBuilt()) {
    // In a process that ends: Vite would stay in this one's memory, 200 MB, for as long as the server runs.
    const { spawnSync } = await import('node:child_process');
    spawnSync(process.execPath, [fileURLToPath(script)], { stdio: 'inherit' });
  }
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
