// The official TypeScript client, asked which 402s it would pay. Reads a JSON array of
// {header, body} from standard input (either may be null) and writes a JSON array of texts: empty
// where it signed a payment, else why it did not. Nothing is sent anywhere.
import { readFileSync } from "node:fs";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { privateKeyToAccount } from "viem/accounts";

const signer = privateKeyToAccount("0x" + "11".repeat(32));

async function refusal({ header, body }) {
  const client = new x402Client();
  registerExactEvmScheme(client, { signer });
  client.register("eip155:*", new UptoEvmScheme(signer));
  client.register("eip155:*", new BatchSettlementEvmScheme(signer));
  client.register("eip155:*", new AuthCaptureEvmScheme(signer));
  client.setSpendControls(false);
  const http = new x402HTTPClient(client);
  try {
    const asked = http.getPaymentRequiredResponse(
      (name) => (name === "PAYMENT-REQUIRED" ? header : null),
      body,
    );
    await client.createPaymentPayload(asked);
    return "";
  } catch (error) {
    return String(error?.message ?? error) || "refused";
  }
}

const answers = [];
for (const question of JSON.parse(readFileSync(0, "utf8"))) answers.push(await refusal(question));
process.stdout.write(JSON.stringify(answers));
