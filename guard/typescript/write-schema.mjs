// Writes dist/journal-schema.js, the schema of the journal that both guards share. Part of the build.
import { copyFileSync, readFileSync, writeFileSync } from "node:fs";

const schema = readFileSync("../python/src/tollgauge_guard/journal.sql", "utf8");
writeFileSync("dist/journal-schema.js", `export const SCHEMA = ${JSON.stringify(schema)};\n`);
copyFileSync("src/journal-schema.d.ts", "dist/journal-schema.d.ts");
