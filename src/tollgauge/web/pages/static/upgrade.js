// The wallet page: buys one live report with a wallet of this browser, and shows it.
//
// The rules that keep money safe:
// - it signs only the displayed terms: price, network, token and payee must equal those of the 402,
//   and the signature must not expire later;
// - a signed payment is stored in localStorage before it is sent, under its payment id, and is sent
//   again until it is answered; nothing else is signed while one is unanswered;
// - after a 5xx or a broken connection the state of the payment is unknown: it is sent again;
// - a 4xx of the service ends a payment without a charge. Any other 4xx may come from a proxy: it
//   ends a payment that was not sent before; otherwise the same payment is sent again.
// Text of others (the report, the wallet's messages) is inserted as text, never as markup.
"use strict";

(() => {
  const script = document.getElementById("script");
  const { api } = script.dataset;
  const deal = JSON.parse(script.dataset.deal);
  const meanings = JSON.parse(script.dataset.meanings);
  const chainId = `0x${BigInt(deal.network.split(":")[1]).toString(16)}`;
  const KEPT = "tollgauge.payment.";
  const KEPT_MS = 30 * 24 * 3600 * 1000;
  const WAIT_MAX_S = 60;
  const LOOK_MS = 400; // for wallets to announce themselves
  const byId = (id) => document.getElementById(id);
  const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

  // Messages for the user. A Stop ends a purchase with a message.
  class Stop extends Error {}

  function say(kind, words) {
    const status = byId("status");
    status.dataset.kind = kind;
    status.textContent = words;
  }

  function at(step) {
    let before = true;
    for (const item of byId("steps").children) {
      const here = item.dataset.step === step;
      before = before && !here;
      item.dataset.state = here ? "here" : before ? "done" : "ahead";
      if (here) item.setAttribute("aria-current", "step");
      else item.removeAttribute("aria-current");
    }
  }

  function dollars(atomic) {
    const scale = 10n ** BigInt(deal.decimals);
    const rest = (BigInt(atomic) % scale).toString().padStart(deal.decimals, "0");
    const cents = rest.replace(/0+$/, "").padEnd(2, "0");
    return `$${BigInt(atomic) / scale}.${cents}`;
  }

  // Wallets: EIP-6963 announcements; window.ethereum only if no wallet announces itself.
  // The demo allows only its own wallet: its chain has the ID of a real chain, so that any other
  // wallet would sign for the real one.
  const wallets = new Map();
  const foreign = new Set();
  let busy = false;
  let quiet = true; // until something was tried, the status is about wallets

  function announce(id, name, provider) {
    if (wallets.has(id) || !provider || typeof provider.request !== "function") return;
    wallets.set(id, { name: String(name || "wallet").slice(0, 40), provider });
    if (wallets.size > 1) wallets.delete("injected");
    offerWallets();
  }

  function leaveOut(name) {
    foreign.add(String(name || "your wallet").slice(0, 40));
    offerWallets();
  }

  function whyLeftOut() {
    const words = document.createElement("p");
    words.className = "aside";
    words.textContent =
      `Not offered: ${[...foreign].join(", ")}. This demo runs on a local chain; a real wallet ` +
      "would sign for a real chain.";
    return words;
  }

  function offerWallets() {
    byId("wallets").replaceChildren(
      ...[...wallets.values()].map(({ name, provider }) => {
        const button = document.createElement("button");
        button.type = "button";
        const verb = byId("report").hidden ? "Pay" : "Buy a new report: pay";
        button.textContent = `${verb} ${dollars(deal.amount)} with ${name}`;
        button.disabled = busy;
        button.addEventListener("click", () => buy(provider));
        return button;
      }),
      ...(foreign.size ? [whyLeftOut()] : []),
    );
    if (!quiet || !wallets.size) return;
    say("ready", deal.wallet ? "Ready." : "Your wallet asks for confirmation before it signs.");
  }

  function findWallets() {
    window.addEventListener("eip6963:announceProvider", ({ detail }) => {
      const info = detail?.info;
      if (!info?.uuid) return;
      if (deal.wallet && info.rdns !== deal.wallet) leaveOut(info.name);
      else announce(info.uuid, info.name, detail.provider);
    });
    const injected = () => {
      if (!window.ethereum) return;
      if (!deal.wallet && !wallets.size) announce("injected", "your wallet", window.ethereum);
      if (deal.wallet && !foreign.size) leaveOut("your wallet");
    };
    window.addEventListener("ethereum#initialized", injected, { once: true });
    window.dispatchEvent(new Event("eip6963:requestProvider"));
    setTimeout(() => {
      injected();
      if (!quiet || wallets.size) return;
      say(
        "none",
        "No wallet was found in this browser. Install or unlock a wallet, then " +
          "reload this page.",
      );
    }, LOOK_MS);
  }

  // Wallet errors have a code (EIP-1193, EIP-1474); their message is added to ours.
  const codeOf = (error) => error?.data?.originalError?.code ?? error?.code;

  function walletStop(error, what) {
    const code = codeOf(error);
    if (code === 4001 || code === "ACTION_REJECTED") {
      return new Stop(`You rejected ${what} in your wallet. Nothing was charged.`);
    }
    if (code === -32002) {
      return new Stop("A request is open in your wallet. Answer it there, then press again.");
    }
    if (code === 4100) {
      return new Stop("Your wallet has not authorized this page. Unlock it and allow this site.");
    }
    if (code === 4200 || code === -32601) {
      return new Stop(`This wallet does not support ${what}. Try another one. Nothing was charged.`);
    }
    const own = String(error?.message ?? error).slice(0, 200);
    return new Stop(`Your wallet failed at ${what}: ${own} Nothing was charged.`);
  }

  async function ask(provider, what, method, params) {
    try {
      return await provider.request(params ? { method, params } : { method });
    } catch (error) {
      throw walletStop(error, what);
    }
  }

  async function connect(provider) {
    const accounts = await ask(provider, "the connection", "eth_requestAccounts");
    if (!accounts?.length) throw new Stop("Your wallet has no account.");
    return accounts[0];
  }

  async function toRightChain(provider) {
    const current = async () =>
      BigInt(await ask(provider, "telling its network", "eth_chainId")) === BigInt(chainId);
    if (await current()) return;
    say("wallet", `Your wallet uses another network. Allow it to switch to ${deal.networkName}.`);
    const wanted = [{ chainId }];
    try {
      await provider.request({ method: "wallet_switchEthereumChain", params: wanted });
    } catch (error) {
      if (codeOf(error) === 4001) throw wrongChain("You rejected the switch");
      if (codeOf(error) !== 4902 || !deal.chain) throw wrongChain("It did not switch");
      await add(provider);
    }
    if (!(await current())) throw wrongChain("It did not switch");
  }

  async function add(provider) {
    try {
      await provider.request({ method: "wallet_addEthereumChain", params: [deal.chain] });
      await provider.request({ method: "wallet_switchEthereumChain", params: [{ chainId }] });
    } catch (error) {
      const refusal = codeOf(error) === 4001;
      throw wrongChain(refusal ? "You refused to add the network" : "It could not be added");
    }
  }

  const wrongChain = (why) =>
    new Stop(
      `Wrong network. ${why}: choose ${deal.networkName} (${deal.network}) in your wallet and ` +
        "press again. Nothing was charged.",
    );

  // Continue if the node does not answer: the service verifies the payment anyway.
  async function checkFunds(provider, account) {
    const data = `0x70a08231${account.slice(2).toLowerCase().padStart(64, "0")}`;
    let balance;
    try {
      const call = { to: deal.asset, data };
      balance = BigInt(await provider.request({ method: "eth_call", params: [call, "latest"] }));
    } catch {
      return;
    }
    if (balance >= BigInt(deal.amount)) return;
    throw new Stop(
      `Too little USDC. ${short(account)} holds ${dollars(balance)} on ${deal.networkName}, the ` +
        `report costs ${dollars(deal.amount)}. Add USDC or choose another account. ` +
        "Nothing was charged.",
    );
  }

  const short = (account) => `${account.slice(0, 6)}…${account.slice(-4)}`;

  // The terms, as any x402 client gets them: a 402 with PAYMENT-REQUIRED.
  async function terms() {
    let answer;
    try {
      answer = await post({});
    } catch {
      throw new Stop("The service cannot be reached. Nothing was charged. Try again in a moment.");
    }
    if (answer.status !== 402) throw new Stop(await detailOf(answer));
    const required = fromBase64(answer.headers.get("PAYMENT-REQUIRED"));
    const accepted = required.accepts.find(same);
    if (!accepted) {
      throw new Stop("The terms have changed since this page was opened. Reload it to see them.");
    }
    const ours = Date.parse(answer.headers.get("Date") ?? "");
    return { required, accepted, now: Math.floor((ours || Date.now()) / 1000) };
  }

  const same = (offer) =>
    offer.scheme === "exact" &&
    offer.network === deal.network &&
    offer.amount === deal.amount &&
    offer.asset.toLowerCase() === deal.asset &&
    offer.payTo.toLowerCase() === deal.payTo &&
    offer.maxTimeoutSeconds <= deal.seconds;

  async function sign(provider, account, { required, accepted, now }) {
    const nonce = hex(crypto.getRandomValues(new Uint8Array(32)));
    const authorization = {
      from: account,
      to: accepted.payTo,
      value: accepted.amount,
      validAfter: String(now - 600),
      validBefore: String(now + accepted.maxTimeoutSeconds),
      nonce,
    };
    const typed = {
      types: {
        EIP712Domain: fields(
          "string name",
          "string version",
          "uint256 chainId",
          "address verifyingContract",
        ),
        TransferWithAuthorization: fields(
          "address from",
          "address to",
          "uint256 value",
          "uint256 validAfter",
          "uint256 validBefore",
          "bytes32 nonce",
        ),
      },
      primaryType: "TransferWithAuthorization",
      domain: {
        name: accepted.extra.name,
        version: accepted.extra.version,
        chainId: Number(BigInt(chainId)),
        verifyingContract: accepted.asset,
      },
      message: authorization,
    };
    const params = [account, JSON.stringify(typed)];
    const signed = await ask(provider, "the signature", "eth_signTypedData_v4", params);
    const signature = recovered(signed);
    const header = toBase64({
      x402Version: 2,
      resource: required.resource,
      accepted,
      payload: { signature, authorization },
      extensions: required.extensions,
    });
    const id = await paymentId(account, nonce);
    return { id, header, at: Date.now(), endpoint: deal.endpoint, state: "sent" };
  }

  // Some hardware wallets end a signature with 0 or 1; USDC requires 27 or 28.
  function recovered(signature) {
    const last = signature.length === 132 ? parseInt(signature.slice(-2), 16) : 27;
    return last > 1 ? signature : signature.slice(0, -2) + (last + 27).toString(16);
  }

  const fields = (...texts) =>
    texts.map((text) => ({ type: text.split(" ")[0], name: text.split(" ")[1] }));
  const hex = (bytes) => `0x${[...bytes].map((b) => b.toString(16).padStart(2, "0")).join("")}`;
  const toBase64 = (value) =>
    btoa(String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value))));
  const fromBase64 = (text) =>
    JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text), (c) => c.charCodeAt(0))));

  // The service's id of this payment; outside a secure context a part of the nonce.
  async function paymentId(account, nonce) {
    if (!crypto.subtle) return nonce.slice(2, 34);
    const key = [deal.network, deal.asset, account.toLowerCase(), nonce].join("|");
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(key));
    return hex(new Uint8Array(digest)).slice(2, 34);
  }

  // Payments stored in this browser.
  function keep(payment) {
    try {
      localStorage.setItem(KEPT + payment.id, JSON.stringify(payment));
      return true;
    } catch {
      return false; // private windows may refuse to store; the page continues from memory
    }
  }

  function forget(payment) {
    try {
      localStorage.removeItem(KEPT + payment.id);
    } catch {
      // Nothing to forget.
    }
  }

  function kept() {
    const payments = [];
    try {
      for (const key of Object.keys(localStorage).filter((name) => name.startsWith(KEPT))) {
        const payment = JSON.parse(localStorage.getItem(key));
        if (Date.now() - payment.at > KEPT_MS) localStorage.removeItem(key);
        else if (payment.endpoint === deal.endpoint) payments.push(payment);
      }
    } catch {
      // The stored data is unreadable.
    }
    return payments.sort((one, other) => other.at - one.at);
  }

  function post(headers) {
    return fetch(api, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      // With its evidence, so that a saved report can be recomputed anywhere.
      body: JSON.stringify({ resource: deal.resource, evidence: "full" }),
      cache: "no-store",
      credentials: "omit",
    });
  }

  async function problemOf(answer) {
    try {
      return (await answer.json()) ?? {};
    } catch {
      return {};
    }
  }

  async function detailOf(answer) {
    const { detail } = await problemOf(answer);
    return detail ?? `The service answered ${answer.status}.`;
  }

  // Sends one payment until it is answered. Never signs. `isNew`: it was never sent before.
  async function answered(payment, isNew) {
    for (let turn = 0; ; turn += 1) {
      let answer = null;
      try {
        answer = await post({ "PAYMENT-SIGNATURE": payment.header });
        if (answer.status === 200) return { report: await answer.json(), answer };
      } catch {
        answer = null;
      }
      const problem = answer ? await problemOf(answer) : {};
      if (answer && ends(payment, answer.status, problem, isNew && turn === 0)) {
        throw refused(payment, answer.status, problem);
      }
      const seconds = Math.min(Number(answer?.headers.get("Retry-After")) || 2 ** turn, WAIT_MAX_S);
      say("wait", waiting(payment, answer, problem));
      await pause(seconds);
    }
  }

  // Whether a refusal is final: it comes from the service (with a `code`, or terms for a 402), or
  // nothing was sent before, or the payment was already answered.
  function ends(payment, status, problem, isFirst) {
    if (status === 429 || status >= 500) return false;
    return status === 402 || Boolean(problem.code) || isFirst || payment.state === "paid";
  }

  function waiting(payment, answer, { code, detail }) {
    const again = "This page keeps sending the same payment; do not pay again.";
    if (!answer) return `The connection broke. Your payment is not lost. ${again}`;
    if (code === "payment-pending") {
      return `Payment pending: its settlement is not known yet. ${again} Payment id ${payment.id}.`;
    }
    return `${detail ?? "The service is unavailable."} ${again}`;
  }

  const REASONS = [
    [/insufficient/, "Too little USDC in this account."],
    [/^expired|valid_before/, "The signature has expired."],
    [/^payment_expired/, "The payment expired before it was settled."],
    [/^payment_failed/, "The payment was canceled or used elsewhere."],
  ];

  function refused(payment, status, problem) {
    if (status === 402 || payment.state === "sent") forget(payment);
    if (status !== 402) return new Stop(problem.detail ?? `The service answered ${status}.`);
    const reason = String(problem.error ?? "").slice(0, 80);
    const words = REASONS.find(([pattern]) => pattern.test(reason))?.[1];
    return new Stop(`${words ?? `The payment was not accepted (${reason}).`} Nothing was charged.`);
  }

  // One purchase at a time. However it ends, the page remains usable.
  async function alone(work) {
    if (busy) return;
    busy = true;
    quiet = false;
    offerWallets();
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Stop)) console.error(error);
      say(
        "problem",
        error instanceof Stop
          ? error.message
          : "This page failed. Reload it: a payment that was sent is stored and continues.",
      );
    } finally {
      busy = false;
      offerWallets();
      listKept();
    }
  }

  const buy = (provider) =>
    alone(async () => {
      const unanswered = kept().find((payment) => payment.state === "sent");
      if (unanswered) return deliver(unanswered);
      at("wallet");
      say("wallet", "Asking your wallet for an account…");
      const account = await connect(provider);
      at("network");
      await toRightChain(provider);
      await checkFunds(provider, account);
      at("sign");
      const offer = await terms();
      say("wallet", `Sign in your wallet: ${dollars(deal.amount)} in USDC from ${short(account)}.`);
      const payment = await sign(provider, account, offer);
      keep(payment);
      return deliver(payment, true);
    });

  async function deliver(payment, isNew = false) {
    at("settle");
    say("busy", payment.state === "paid" ? "Fetching the report…" : "Probing and settling…");
    const { report, answer } = await answered(payment, isNew);
    const receipt = fromBase64(answer.headers.get("PAYMENT-RESPONSE"));
    const held = keep({ ...payment, state: "paid" });
    at("done");
    say(
      "good",
      held
        ? "Paid. The report is below; this browser can open it again for 30 days."
        : "Paid. The report is below. This browser cannot store it: save the report as a file.",
    );
    history.replaceState(null, "", `#report-${payment.id}`);
    show(report, { ...receipt, id: payment.id });
  }

  function listKept() {
    const paid = kept().filter((payment) => payment.state === "paid");
    byId("kept").hidden = paid.length === 0;
    byId("kept-list").replaceChildren(
      ...paid.map((payment) => {
        const link = document.createElement("a");
        link.href = `#report-${payment.id}`;
        link.textContent = `Report of ${time(new Date(payment.at).toISOString())}`;
        const button = document.createElement("button");
        button.type = "button";
        button.className = "plain-button";
        button.textContent = "Forget";
        button.setAttribute("aria-label", `Forget the ${link.textContent.toLowerCase()}`);
        button.addEventListener("click", () => {
          forget(payment);
          listKept();
        });
        const row = document.createElement("li");
        row.append(link, " ", button);
        return row;
      }),
    );
  }

  // The URL may name a payment; an unanswered payment is resumed automatically.
  function resume() {
    const wanted = location.hash.match(/^#report-([0-9a-f]{32})$/)?.[1];
    const mine = kept();
    const payment = wanted
      ? mine.find(({ id }) => id === wanted)
      : mine.find(({ state }) => state === "sent");
    if (payment) return alone(() => deliver(payment));
    if (wanted) {
      quiet = false;
      say(
        "problem",
        "This browser does not have the payment for this link. A link opens a report only in the " +
          "browser that bought it.",
      );
    }
    return undefined;
  }

  // The report: the page's layout, filled with text.
  const NONE = "—";
  const time = (text) => `${text.slice(0, 10)} ${text.slice(11, 16)} UTC`;
  const number = (value, most, least = 0) =>
    value.toLocaleString("en-US", { minimumFractionDigits: least, maximumFractionDigits: most });
  const FORMS = {
    text: String,
    count: (value) => number(value, 0),
    ms: (value) => `${number(value, 0)} ms`,
    percent: (value) => `${value.toFixed(1)}%`,
    part: (value) => `${(value * 100).toFixed(1)}%`,
    chance: (value) =>
      value > 0 && value < 1 ? FORMS.part(value) : value > 0 ? "over 99.9%" : "under 0.1%",
    score: (value) => value.toFixed(1),
    share: (value) => value.toFixed(2),
    usd: (value) => `$${number(value, 6, 2)}`,
    coverage: (value) =>
      Object.entries(value)
        .flatMap(([network, forms]) =>
          Object.entries(forms).map(([form, reading]) => `${form} on ${network}: ${reading}`),
        )
        .join(", ") || NONE,
    time,
  };
  FORMS.price = FORMS.usd;
  const EMPTY = { price: "not advertised" };
  const look = (value, path) => path.split(".").reduce((inner, key) => inner?.[key], value);
  const has = (value) =>
    Array.isArray(value) ? value.length > 0 : ![undefined, null, "", false].includes(value);
  const slug = (text) => String(text ?? "none").toLowerCase().replace(/[^a-z-]/g, "");

  // Visits every element with a data attribute and removes the attribute, so that it is filled once.
  function each(root, name, work) {
    for (const part of root.querySelectorAll(`[data-${name}]`)) {
      const path = part.dataset[name];
      part.removeAttribute(`data-${name}`);
      work(part, path);
    }
  }

  function fill(root, value) {
    each(root, "each", (layout, path) => {
      for (const item of look(value, path) ?? []) {
        const copy = layout.content.cloneNode(true);
        fill(copy, item);
        layout.before(copy);
      }
      layout.remove();
    });
    each(root, "if", (part, path) => has(look(value, path)) || part.remove());
    each(root, "unless", (part, path) => has(look(value, path)) && part.remove());
    each(root, "from", (part, path) => {
      const form = part.dataset.as ?? "text";
      const figure = look(value, path) ?? null;
      part.textContent = figure === null ? (EMPTY[form] ?? NONE) : FORMS[form](figure);
    });
    each(root, "sev", (part) => part.classList.add(`sev-${slug(value.severity)}`));
    each(root, "bar", (part, path) => {
      const percent = Math.max(0, Math.min(100, look(value, path) ?? 0));
      part.setAttribute("width", String(2 * percent));
    });
  }

  function show(report, receipt) {
    const view = {
      ...report,
      meaning: meanings[report.recommendation] ?? "",
      payable: has(report.payableNow) && { now: report.payableNow, day: report.payable24h },
      own: has(report.advertisedBy.serviceName) || has(report.advertisedBy.description),
      components: Object.entries(report.policy.weights).map(([name, weight]) => {
        return { name, weight, subscore: report.breakdown[name] };
      }),
      receipt: { ...receipt, paid: dollars(receipt.amount ?? deal.amount) },
    };
    const page = byId("report-layout").content.cloneNode(true);
    fill(page, view);
    const chip = page.querySelector("[data-grade]");
    chip.classList.add(`grade-${slug(report.grade)}`);
    chip.textContent = report.grade ?? NONE;
    page.querySelector("[data-rec]").classList.add(`rec-${slug(report.recommendation)}`);
    page.querySelector("[data-link]").href = `#report-${receipt.id}`;
    page.querySelector("[data-json]").textContent = JSON.stringify(report, null, 2);
    page.querySelector("[data-save]").addEventListener("click", () => save(report));
    byId("report").replaceChildren(page);
    byId("report").hidden = false;
    byId("report").focus({ preventScroll: true });
    byId("report").scrollIntoView({ block: "start" });
  }

  function save(report) {
    const link = document.createElement("a");
    const file = new Blob([JSON.stringify(report, null, 2)], { type: "application/json" });
    link.href = URL.createObjectURL(file);
    link.download = `tollgauge-${deal.endpoint}-${report.evidence.asOf.slice(0, 10)}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  listKept();
  resume();
  findWallets();
  window.addEventListener("hashchange", resume);
})();
