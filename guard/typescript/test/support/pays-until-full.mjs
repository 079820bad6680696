// A process that pays URL again and again with the journal FILE, until it is refused; prints the error's name.
import { wrapFetchWithPayment } from "@x402/fetch";
import { paying } from "./client.mjs";

const [url, journal] = process.argv.slice(2);
const { guard } = paying([], { journal });
const pay = guard.fetch(wrapFetchWithPayment);
const errors = [];
for (let number = 0; number < 60; number += 1) {
  await pay(`${url}?${number}`).catch((error) => errors.push(`${error.name} ${error.message}`));
}
console.log(JSON.stringify(errors));
