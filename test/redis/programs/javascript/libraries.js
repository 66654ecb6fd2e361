'use strict';

const { randomUUID } = require('node:crypto');
const { join } = require('node:path');
const Redis = require('ioredis');
const { createClient } = require('redis');

// The scripts that applications use with a plain client.
const RELEASE = 'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end';
const EXTEND =
  'if redis.call("get",KEYS[1]) == ARGV[1] then return redis.call("pexpire",KEYS[1],ARGV[2]) else return 0 end';

// version returns the installed version of a package.
const version = (name) => require(join(__dirname, 'node_modules', name, 'package.json')).version.replace(/^v/, '');

// connect returns a client of ioredis that reports errors with each command only.
function connect(host, port) {
  const conn = new Redis({ host, port });
  conn.on('error', () => {});
  return conn;
}

// ioredis is SET NX PX and the scripts.
async function ioredis(host, port) {
  const conn = connect(host, port);
  conn.defineCommand('lockRelease', { numberOfKeys: 1, lua: RELEASE });
  conn.defineCommand('lockExtend', { numberOfKeys: 1, lua: EXTEND });
  return {
    version: version('ioredis'),
    pttl: (key) => conn.pttl(key),
    acquire: async (key, ttl) => {
      const value = randomUUID();
      return (await conn.set(key, value, 'PX', ttl, 'NX')) === 'OK' && {
        held: async () => (await conn.get(key)) === value,
        extend: async (ttl) => (await conn.lockExtend(key, value, ttl)) === 1,
        release: async () => (await conn.lockRelease(key, value)) === 1,
      };
    },
  };
}

// nodeRedis is the same with node-redis.
async function nodeRedis(host, port) {
  const conn = createClient({ socket: { host, port } });
  conn.on('error', () => {});
  await conn.connect();
  return {
    version: version('redis'),
    pttl: (key) => conn.pTTL(key),
    acquire: async (key, ttl) => {
      const value = randomUUID();
      const run = (script, ...args) => conn.eval(script, { keys: [key], arguments: [value, ...args] });
      return (await conn.set(key, value, { NX: true, PX: ttl })) === 'OK' && {
        held: async () => (await conn.get(key)) === value,
        extend: async (ttl) => (await run(EXTEND, String(ttl))) === 1,
        release: async () => (await run(RELEASE)) === 1,
      };
    },
  };
}

// redlock4 is redlock 4.2.0, which reports errors of the server as an event only.
async function redlock4(host, port) {
  const Redlock = require('redlock-4');
  const conn = connect(host, port);
  const redlock = new Redlock([conn], { retryCount: 0 });
  let serverError;
  redlock.on('clientError', (e) => { serverError = e; });
  // attempt returns the result, or null if the lock is held by another or by none.
  const attempt = async (call) => {
    serverError = null;
    try {
      return await call();
    } catch (e) {
      if (serverError || !(e instanceof Redlock.LockError)) throw serverError || e;
      return null;
    }
  };
  return {
    version: version('redlock-4'),
    pttl: (key) => conn.pttl(key),
    acquire: async (key, ttl) => {
      const lock = await attempt(() => redlock.lock(key, ttl));
      return lock && {
        held: async () => (await conn.get(key)) === lock.value,
        extend: async (ttl) => Boolean(await attempt(() => lock.extend(ttl))),
        release: async () => (await attempt(async () => { await lock.unlock(); return true; })) === true,
      };
    },
  };
}

// redlock5 is redlock 5.0.0-beta.2. The servers' answers are in the error.
async function redlock5(host, port) {
  const { default: Redlock, ExecutionError, ResourceLockedError } = require('redlock-5');
  const conn = connect(host, port);
  const redlock = new Redlock([conn], { retryCount: 0 });
  const attempt = async (call) => {
    try {
      return await call();
    } catch (e) {
      if (!(e instanceof ExecutionError)) throw e;
      for (const stats of await Promise.all(e.attempts)) {
        for (const against of stats.votesAgainst.values()) if (!(against instanceof ResourceLockedError)) throw against;
      }
      return null;
    }
  };
  return {
    version: version('redlock-5'),
    pttl: (key) => conn.pttl(key),
    acquire: async (key, ttl) => {
      let lock = await attempt(() => redlock.acquire([key], ttl));
      return lock && {
        held: async () => (await conn.get(key)) === lock.value,
        extend: async (ttl) => {
          const extended = await attempt(() => lock.extend(ttl));
          lock = extended || lock;
          return Boolean(extended);
        },
        release: async () => Boolean(await attempt(() => lock.release())),
      };
    },
  };
}

// simpleMutex is simple-redis-mutex 1.4.0, the last version without a subscription. It cannot extend, and its release
// does not report whether the lock was held: another reader must find out.
async function simpleMutex(host, port) {
  const { lock } = require('simple-redis-mutex');
  const conn = connect(host, port);
  const key = (name) => `@simple-redis-mutex:lock-${name}`;
  return {
    version: version('simple-redis-mutex'),
    pttl: (name) => conn.pttl(key(name)),
    acquire: async (name, ttl) => {
      let release;
      try {
        // One try only: a try that has failed continues if its last request was under way.
        release = await lock(conn, name, { timeoutMillis: ttl, retryTimeMillis: 60_000, failAfterMillis: 1000 });
      } catch (e) {
        await conn.ping(); // fails if the server was the reason
        return null;
      }
      const value = await conn.get(key(name));
      const held = async () => (await conn.get(key(name))) === value;
      return {
        held,
        release: async () => { const was = await held(); await release(); return was && !(await held()); },
      };
    },
  };
}

module.exports = {
  ioredis,
  'node-redis': nodeRedis,
  'redlock 4': redlock4,
  'redlock 5': redlock5,
  'simple-redis-mutex': simpleMutex,
};
