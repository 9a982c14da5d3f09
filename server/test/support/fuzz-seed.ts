import fc from 'fast-check';

/**
 * Property tests draw the same cases each time, so that a red run is the change's doing and can be repeated.
 * `SLUICE_SEED=random` draws new ones (worth an hour before a release), a number repeats those of a report.
 */
const asked = process.env.SLUICE_SEED;
if (asked !== 'random') fc.configureGlobal({ seed: asked === undefined ? 20_261_122 : Number(asked) });
