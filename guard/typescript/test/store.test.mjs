// A journal on the storage of a Durable Object, which has numbers for integers, takes no BigInts, and
// runs no PRAGMA. guard/adapters/cloudflare.test.mjs runs it in workerd.
import assert from "node:assert/strict";
import { DatabaseSync } from "node:sqlite";
import { after, before, test } from "node:test";
import { durableStore } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row } from "./support/bundles.mjs";
import { paying, refusal } from "./support/client.mjs";
import { asks, delivers, offer, PAYEE, seller } from "./support/seller.mjs";

let shop;
let isDelivering = true;

before(async () => {
  shop = await seller({
    "/good": (request, response, payment, { url }) => {
      if (payment === null) asks(response, url + request.url, offer());
      else if (isDelivering) delivers(response);
      else response.writeHead(503).end();
    },
  });
});
after(() => shop.close());

function storage() {
  const database = new DatabaseSync(":memory:");
  return durableStore({
    sql: {
      exec(sql, ...values) {
        assert.doesNotMatch(sql, /PRAGMA|BEGIN|COMMIT/);
        assert.doesNotMatch(sql, /\?\d/); // Node.js 22.13 cannot bind values to it
        assert.ok(values.every((one) => typeof one !== "bigint"));
        const rows = database.prepare(sql).all(...values);
        return { toArray: () => rows };
      },
    },
    transactionSync(work) {
      database.exec("BEGIN");
      try {
        const result = work();
        database.exec("COMMIT");
        return result;
      } catch (error) {
        database.exec("ROLLBACK");
        throw error;
      }
    },
  });
}

function customer(journal) {
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  const { guard } = paying(rows, { journal, policy: { maxDay: 2_000n } });
  return { guard, pay: guard.fetch(wrapFetchWithPayment) };
}

test("payments, budgets and refusals are kept in a store of the program", async () => {
  const journal = storage();
  const { guard, pay } = customer(journal);
  isDelivering = false;
  assert.equal((await pay(`${shop.url}/good`)).status, 503);
  const later = customer(journal);
  isDelivering = true;
  assert.equal((await later.pay(`${shop.url}/good`)).status, 200);
  assert.deepEqual(shop.payments[0], shop.payments[1]);
  await (await pay(`${shop.url}/good?2`)).text();
  assert.equal(await refusal(pay(`${shop.url}/good?3`)), "over-day-budget");
  const payments = guard.journal.payments();
  assert.deepEqual(payments.map(({ state, exposure }) => [state, exposure]), [
    ["delivered", 1_000n],
    ["delivered", 1_000n],
  ]);
  assert.deepEqual(guard.journal.refusals().map(({ code }) => code), ["over-day-budget"]);
});

test("a payment that a store cannot record does not leave", async () => {
  const journal = storage();
  const { pay } = customer({
    ...journal,
    all: (sql, ...values) => {
      if (sql.startsWith("UPDATE payments")) throw new Error("the storage is full");
      return journal.all(sql, ...values);
    },
  });
  const before = shop.payments.length;
  await assert.rejects(pay(`${shop.url}/good`), /the storage is full/);
  assert.equal(shop.payments.length, before);
});
