// Acquires a lock as a lease, extends it and releases it, with the types of the OpenAPI document. The argument is
// the URL of a node's HTTP port.
import { randomBytes } from "node:crypto";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

const client = createClient<paths>({ baseUrl: process.argv[2] });
const secret = randomBytes(32).toString("base64");

function granted(what: string, status: string | undefined, wanted: string): void {
  if (status !== wanted) {
    throw new Error(`${what}: ${status}, not ${wanted}`);
  }
  console.log(`${what}: ${status}`);
}

const acquired = await client.POST("/quorumlock.v1.LeaseService/Acquire", {
  body: { secret, ttlMs: 30_000, acquire: { locks: [{ name: "deploy/web" }], waitMs: 5_000 } },
});
granted("acquire", acquired.data?.status, "GRANTED");

const extended = await client.POST("/quorumlock.v1.LeaseService/Extend", {
  body: { secret, holdId: acquired.data!.holdId },
});
granted("extend", extended.data?.status, "OK");

const shown = await client.POST("/quorumlock.v1.LockService/Get", { body: { name: "deploy/web" } });
if (shown.data?.holders?.[0]?.token !== acquired.data!.token) {
  throw new Error(`the lock is held by ${JSON.stringify(shown.data)}`);
}

const released = await client.POST("/quorumlock.v1.LeaseService/Release", { body: { secret } });
granted("release", released.data?.status, "OK");
