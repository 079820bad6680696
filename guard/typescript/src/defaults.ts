/** Default paths of the guard's files (XDG Base Directory), the same as those of the Python guard. */

import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";

/** The journal of this user. */
export function journalFile(): string {
  return join(folder("XDG_STATE_HOME", ".local/state"), "journal.sqlite");
}

/** The folder of downloaded bundles. */
export function cacheFolder(): string {
  return folder("XDG_CACHE_HOME", ".cache");
}

function folder(variable: string, usual: string): string {
  const base = process.env[variable] ?? "";
  return join(isAbsolute(base) ? base : join(homedir(), usual), "tollgauge-guard");
}
