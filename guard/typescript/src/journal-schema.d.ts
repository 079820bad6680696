/** The content of journal.sql. The build writes it, because some runtimes have no files. */
export declare const SCHEMA: string;
