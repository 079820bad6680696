// Other hooks of the client that change the payment: no changed payment leaves.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";
import { guarded, MEMORY } from "@tollgauge/guard";
import { wrapFetchWithPayment } from "@x402/fetch";
import { row, signedBundle } from "./support/bundles.mjs";
import { key, paying, refusal, signingClient } from "./support/client.mjs";
import { offer, PAYEE, seller, sells, THIEF } from "./support/seller.mjs";

const OTHER_TOKEN = "0x0b2c639c533813f4aa9d7837caf62653d097ff85";
let shop;

before(async () => {
  shop = await seller({ "/good": sells(), "/stranger": sells() });
});
after(() => shop.close());
beforeEach(() => shop.payments.splice(0));

const changed =
  (changes) =>
  ({ selectedRequirements }) =>
    Object.assign(selectedRequirements, changes);

/** Each registers hooks before the guard's (`earlier`) or after them (`later`). */
const ATTACKS = {
  "a later hook changes the payee": {
    later: (client) =>
      client.onBeforePaymentCreation(async (context) => void changed({ payTo: THIEF })(context)),
  },
  "a later hook changes the price": {
    later: (client) =>
      client.onBeforePaymentCreation(
        async (context) => void changed({ amount: "999999" })(context),
      ),
  },
  "a later hook replaces the domain": {
    later: (client) =>
      client.onBeforePaymentCreation(
        async ({ selectedRequirements }) => void (selectedRequirements.extra.name = "Other"),
      ),
  },
  "the token is another one while it is signed": {
    earlier: (client) =>
      client.onAfterPaymentCreation(async (context) => void changed(offer())(context)),
    later: (client) =>
      client.onBeforePaymentCreation(
        async (context) => void changed({ asset: OTHER_TOKEN })(context),
      ),
  },
  "the guard is shown another offer than the one that is signed": {
    earlier: (client) =>
      client.onBeforePaymentCreation(async (context) => {
        changed({ payTo: THIEF })(context);
        context.selectedRequirements = offer();
      }),
  },
  "the guard is shown another token than the one that is signed": {
    earlier: (client) => {
      let real;
      client.onBeforePaymentCreation(async (context) => {
        real = Object.assign(context.selectedRequirements, { asset: OTHER_TOKEN });
        context.selectedRequirements = offer();
      });
      client.onAfterPaymentCreation(async () => void Object.assign(real, offer()));
    },
  },
  "an offer says something else each time it is read": {
    earlier: (client) =>
      client.registerPolicy((_, accepts) =>
        accepts.map((one) => {
          let reads = 0;
          return Object.defineProperty({ ...one }, "payTo", {
            get: () => (reads++ < 1 ? PAYEE : THIEF),
            enumerable: true,
          });
        }),
      ),
  },
  "an offer is a proxy": {
    earlier: (client) =>
      client.registerPolicy((_, accepts) => accepts.map((one) => new Proxy(one, {}))),
  },
  "a later hook changes what was signed": {
    later: (client) =>
      client.onAfterPaymentCreation(
        async ({ paymentPayload }) => void (paymentPayload.payload.authorization.to = THIEF),
      ),
  },
  "a later hook changes what was signed and what it says": {
    later: (client) =>
      client.onAfterPaymentCreation(async ({ paymentPayload }) => {
        paymentPayload.payload.authorization.to = THIEF;
        paymentPayload.accepted = offer({ payTo: THIEF });
      }),
  },
  "a later hook makes it valid for years": {
    later: (client) =>
      client.onAfterPaymentCreation(
        async ({ paymentPayload }) =>
          void (paymentPayload.payload.authorization.validBefore = "99999999999"),
      ),
  },
  "a later hook says another payee than was signed": {
    later: (client) =>
      client.onAfterPaymentCreation(
        async ({ paymentPayload }) => void (paymentPayload.accepted = offer({ payTo: THIEF })),
      ),
  },
  "a hook of failures brings a payment of its own": {
    later: (client) => {
      let mine;
      client.onAfterPaymentCreation(async ({ paymentPayload }) => {
        mine = structuredClone(paymentPayload);
        throw new Error("something fails");
      });
      client.onPaymentCreationFailure(async () => {
        mine.payload.authorization.to = THIEF;
        return { recovered: true, payload: mine };
      });
    },
  },
  "an extension adds a second authorization": {
    later: (client) =>
      client.registerExtension({
        key: "more",
        enrichPaymentPayload: async (payload) => ({
          ...payload,
          payload: { ...payload.payload, permit: "0x" },
        }),
      }),
  },
};

for (const [name, { earlier, later = () => undefined }] of Object.entries(ATTACKS)) {
  test(`nothing is paid when ${name}`, async () => {
    const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
    const { client, guard } = paying(rows, earlier === undefined ? {} : { earlier });
    later(client);
    await assert.rejects(guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`));
    assert.deepEqual(shop.payments, []);
    assert.deepEqual(guard.unresolved(), []);
  });

  test(`without a guard it is paid when ${name}`, async () => {
    const client = signingClient();
    earlier?.(client);
    later(client);
    assert.equal((await wrapFetchWithPayment(fetch, client)(`${shop.url}/good`)).status, 200);
  });
}

test("two guards of one client judge their own calls alone", async () => {
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  const { client, guard: mean } = paying(rows, { policy: { maxCall: 1n } });
  const kind = guarded(client, { bundle: signedBundle(rows, key), key: key.jwk, journal: MEMORY });
  const [meanly, kindly] = [mean, kind].map((guard) => guard.fetch(wrapFetchWithPayment));
  assert.equal(await refusal(meanly(`${shop.url}/good`)), "over-call-cap");
  assert.equal((await kindly(`${shop.url}/good`)).status, 200);
  await assert.rejects(wrapFetchWithPayment(fetch, client)(`${shop.url}/good`));
  assert.equal(shop.payments.length, 1);
});

test("a guard inside the fetch of another one pays, and is asked alone", async () => {
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  const { client, guard: outer } = paying(rows, { policy: { maxCall: 1n } });
  const inner = guarded(client, { bundle: signedBundle(rows, key), key: key.jwk, journal: MEMORY });
  const fetch = outer.fetch(wrapFetchWithPayment, inner.fetch(wrapFetchWithPayment));
  assert.equal((await fetch(`${shop.url}/good`)).status, 200);
  assert.equal(shop.payments.length, 1);
});

test("who is asked pays nothing by the client itself, and may pay through the guard", async () => {
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  for (const isGuarded of [false, true]) {
    const { client, guard } = paying(rows, { policy: { unknown: "ask" }, ask: () => pays() });
    const paid = guard.fetch(wrapFetchWithPayment);
    const pay = isGuarded ? paid : wrapFetchWithPayment(fetch, client);
    let questions = 0;
    const pays = async () => (questions += 1) > 1 || (await pay(`${shop.url}/good`)).ok;
    shop.payments.length = 0;
    if (isGuarded) assert.equal((await paid(`${shop.url}/stranger`)).status, 200);
    else await assert.rejects(paid(`${shop.url}/stranger`), /not called through the guard/);
    assert.equal(shop.payments.length, isGuarded ? 2 : 0);
  }
});

test("the client of another guard pays nothing in the middle of a call", async () => {
  const rows = [row(`${shop.url}/good`, { payTo: [PAYEE] })];
  const other = paying(rows);
  const { guard } = paying(rows, { policy: { unknown: "ask" }, ask: pays });
  async function pays() {
    return (await wrapFetchWithPayment(fetch, other.client)(`${shop.url}/good`)).ok;
  }
  await assert.rejects(guard.fetch(wrapFetchWithPayment)(`${shop.url}/stranger`), /resource-mismatch/);
  assert.deepEqual(shop.payments, []);
});

test("nothing is paid when a hook fails", async () => {
  const { client, guard } = paying([row(`${shop.url}/good`, { payTo: [PAYEE] })]);
  client.onBeforePaymentCreation(() => Promise.reject(new Error("it fails")));
  await assert.rejects(guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`), /it fails/);
  assert.deepEqual(shop.payments, []);
});

test("hooks that change nothing, and extensions that add to the extensions, are no obstacle", async () => {
  const { client, guard } = paying([row(`${shop.url}/good`, { payTo: [PAYEE] })]);
  client.onBeforePaymentCreation(async () => undefined);
  client.registerExtension({
    key: "note",
    enrichPaymentPayload: async (payload) => ({ ...payload, extensions: { note: 1 } }),
  });
  assert.equal((await guard.fetch(wrapFetchWithPayment)(`${shop.url}/good`)).status, 200);
});
