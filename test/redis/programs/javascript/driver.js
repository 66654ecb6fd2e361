// Drives lock libraries in JavaScript: reads steps and prints outcomes, as driver_test.go describes.
//
//     node driver.js CLIENT ADDRESS
'use strict';

const readline = require('node:readline');
const libraries = require('./libraries');

const [client, address] = process.argv.slice(2);
const [host, port] = address.split(':');
const locks = new Map(); // by key

const show = (outcome) => process.stdout.write(JSON.stringify(outcome) + '\n');

// execute runs one step. Locks of all libraries have the methods held, extend and release, which return whether the
// lock was held.
async function execute(library, [step, key, ttl]) {
  const lock = locks.get(key);
  switch (step) {
    case 'acquire': {
      const acquired = await library.acquire(key, Number(ttl));
      if (acquired) locks.set(key, acquired);
      return { ok: Boolean(acquired) };
    }
    case 'held': return { ok: await lock.held() };
    case 'extend': return lock.extend ? { ok: await lock.extend(Number(ttl)) } : { missing: true };
    case 'release': return { ok: await lock.release() };
    case 'ttl': return { ttl: await library.pttl(key) };
    default: throw new Error(`unknown step ${step}`);
  }
}

async function main() {
  const library = await libraries[client](host, Number(port));
  show({ version: library.version });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    await execute(library, line.split(' ')).then(show, (e) => show({ error: String(e.message || e) }));
  }
  process.exit(0); // connections that are open keep the process running
}

// simple-redis-mutex does not catch errors of its attempts.
process.on('unhandledRejection', (e) => process.stderr.write(`${e}\n`));
main().catch((e) => {
  process.stderr.write(`${e.stack}\n`);
  process.exit(1);
});
