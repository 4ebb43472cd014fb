/** The beginning of each thread. Arguments: the URL of its module and the folder of the cache. */
import { enableCompileCache } from "node:module";

const [module = "", folder] = process.argv.slice(2);
if (folder !== undefined) enableCompileCache(folder);
await import(module);
