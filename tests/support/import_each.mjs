// Imports the module that each line of standard input names. Prints a NUL after each.
import { createInterface } from "node:readline";

for await (const path of createInterface({ input: process.stdin })) {
  await import(path);
  process.stdout.write("\0");
}
