// node-redlock, in a process of its own: `node worker.mjs CALLERS KEY URL...`.
//
// It speaks the floor's protocol (bench/floor/floor.c): prints `ready` when it is
// connected, answers each line `run PAIRS` with one line of JSON, and ends with its
// standard input. Each caller has a key of its own, and takes and releases it in turn.

import { createInterface } from "node:readline";

import Redis from "ioredis";
import Redlock from "redlock";

const TTL_MS = 10_000;
const [callers, key, ...urls] = process.argv.slice(2);
const clients = urls.map((url) => new Redis(url));
const redlock = new Redlock(clients);
const keys = Array.from(
  { length: Number(callers) },
  (_, slot) => `${key}:${String(slot).padStart(5, "0")}`,
);

async function runBlock(pairs) {
  const latencies = [];
  let left = pairs;
  const cpuBefore = process.cpuUsage();
  const began = process.hrtime.bigint();
  await Promise.all(
    keys.map(async (name) => {
      while (left-- > 0) {
        const start = process.hrtime.bigint();
        const lock = await redlock.acquire([name], TTL_MS);
        await lock.release();
        latencies.push(Number(process.hrtime.bigint() - start));
      }
    }),
  );
  const wall = Number(process.hrtime.bigint() - began);
  const cpu = process.cpuUsage(cpuBefore);
  return {
    pairs: latencies.length,
    wall_ns: wall,
    cpu_ns: 1000 * (cpu.user + cpu.system),
    latencies_ns: latencies,
  };
}

await Promise.all(clients.map((client) => client.ping()));
await runBlock(keys.length); // its scripts are loaded
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const pairs = Number(line.slice("run ".length));
  console.log(JSON.stringify(await runBlock(pairs)));
}
for (const client of clients) client.disconnect();
