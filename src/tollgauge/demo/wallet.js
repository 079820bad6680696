// The demo's wallet, announced to the page as extensions announce theirs (EIP-6963, EIP-1193).
//
// It has one account of the demo's local chain. The demo's server answers for it, because everyone
// knows its key. No service but the demo has this file.
"use strict";

(() => {
  const { rpc, rdns } = document.getElementById("demo-wallet").dataset;

  async function request({ method, params = [] }) {
    const answer = await fetch(rpc, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ method, params }),
      credentials: "omit",
    });
    const { result, error } = await answer.json();
    if (error) throw Object.assign(new Error(error.message), error);
    return result;
  }

  const info = Object.freeze({
    uuid: "5f0c1d1e-4b0a-4c55-9d0e-7d2f3a6b8c90",
    name: "the demo wallet",
    icon: "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E",
    rdns,
  });
  const detail = Object.freeze({ info, provider: Object.freeze({ request }) });
  const announce = () =>
    window.dispatchEvent(new CustomEvent("eip6963:announceProvider", { detail }));
  window.addEventListener("eip6963:requestProvider", announce);
  announce();
})();
