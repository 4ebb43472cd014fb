// node-llama-cpp asks each of its binary packages for `getBinsDir()` and goes on without those that have none.
export {};
