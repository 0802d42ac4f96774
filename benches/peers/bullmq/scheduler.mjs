// BullMQ as https://docs.bullmq.io/guide/job-schedulers shows it: one job scheduler for each job,
// and a worker in the same process. Its guide to concurrency
// (https://docs.bullmq.io/guide/workers/concurrency) suggests 100 to 300 for jobs that wait for
// something else, and a child process is that.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import IORedis from 'ioredis';
import { Queue, Worker } from 'bullmq';

const [url, list] = process.argv.slice(2);
const { command, jobs } = JSON.parse(readFileSync(list, 'utf8'));
// Workers need this setting (https://docs.bullmq.io/guide/going-to-production).
const connection = new IORedis(url, { maxRetriesPerRequest: null });
const queue = new Queue('peers', { connection });

const worker = new Worker(
  'peers',
  async () => {
    await once(spawn(command[0], command.slice(1), { stdio: 'ignore' }), 'exit');
  },
  { connection, concurrency: 200, removeOnComplete: { count: 100 } },
);
worker.on('error', (error) => console.error(error));

// A hundred at a time, so that the start does not wait for each round trip.
for (let from = 0; from < jobs.length; from += 100) {
  await Promise.all(
    jobs.slice(from, from + 100).map(({ name, cron }) =>
      queue.upsertJobScheduler(name, { pattern: cron, tz: 'UTC' }, { name, data: {} }),
    ),
  );
}
console.log('ready');
