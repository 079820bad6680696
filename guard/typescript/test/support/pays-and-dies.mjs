// A process that pays URL with the journal FILE. The seller never answers, so the test ends it.
import { wrapFetchWithPayment } from "@x402/fetch";
import { paying } from "./client.mjs";

const [url, journal] = process.argv.slice(2);
const { guard } = paying([], { journal });
await guard.fetch(wrapFetchWithPayment)(url);
