// `npm start`: makes the console current, then serves.
// An old Node.js goes straight to its refusal.
if (Number(process.versions.node.split('.')[0]) >= 24) {
  const { ensureBuilt } = await import('../../console/ensure-built.mjs');
  await ensureBuilt();
}

// npm passes a signal to the shell it started, which ends without telling us. A new parent means that this happened.
const parent = process.ppid;
const watch = setInterval(() => {
  if (process.ppid === parent) return;
  clearInterval(watch);
  process.kill(process.pid, 'SIGTERM');
}, 250);
watch.unref();

process.argv.splice(2, 0, 'serve');
await import('./sluice.mjs');
