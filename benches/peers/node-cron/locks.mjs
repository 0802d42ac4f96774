// Locks and unlocks N times with redlock, and prints how long each cycle took, in microseconds.
import IORedis from 'ioredis';
import Redlock from 'redlock';

const [url, count] = process.argv.slice(2);
const client = new IORedis(url);
const redlock = new Redlock([client], { retryCount: 0 });
const took = [];
for (let n = -500; n < Number(count); n += 1) {
  const began = process.hrtime.bigint();
  const lock = await redlock.lock('lock:cycle', 10_000);
  await lock.unlock();
  if (n >= 0) took.push(Number(process.hrtime.bigint() - began) / 1000);
}
console.log(JSON.stringify(took));
client.disconnect();
