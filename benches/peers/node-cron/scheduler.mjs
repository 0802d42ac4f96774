// node-cron with redlock. Two ways to keep hosts apart:
//
// job          the lock is taken at the beginning of the job and released at its end, as
//              https://www.npmjs.com/package/redlock shows it
// coordinator  node-cron asks a "run coordinator" before each run and names the occurrence in the
//              key (https://www.nodecron.com/distributed-coordination.html); the lock of that key is
//              left to expire after the 30 seconds that node-cron passes
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import IORedis from 'ioredis';
import cron from 'node-cron';
import Redlock from 'redlock';

const [url, list, way] = process.argv.slice(2);
const { command, jobs } = JSON.parse(readFileSync(list, 'utf8'));
// Who finds the lock taken skips the job instead of waiting for it: "it is sufficient to attempt a
// lock with retryCount=0".
const redlock = new Redlock([new IORedis(url)], { retryCount: 0 });
redlock.on('clientError', (error) => console.error(error));

const run = async () => {
  await once(spawn(command[0], command.slice(1), { stdio: 'ignore' }), 'exit');
};

const underLock = (name) => async () => {
  let lock;
  try {
    lock = await redlock.lock(`lock:${name}`, 30_000);
  } catch {
    return;
  }
  try {
    await run();
  } finally {
    await lock.unlock().catch((error) => console.error(error));
  }
};

const runCoordinator = {
  shouldRun: (key, ttl) => redlock.lock(key, ttl).then(
    () => true,
    () => false,
  ),
};

// After the default of one second, node-cron counts a late run as missed and drops it.
const options = { timezone: 'UTC', missedExecutionTolerance: 60_000 };
for (const { name, cron: pattern } of jobs) {
  if (way === 'coordinator') {
    cron.schedule(pattern, run, { ...options, name, distributed: true, runCoordinator });
  } else {
    cron.schedule(pattern, underLock(name), { ...options, name });
  }
}
console.log('ready');
