/** Maps with a bound, which forget what was set longest ago. */

/** Sets an entry as the newest of its map. Beyond `sizeMax`, the oldest entry is forgotten. */
export function setNewest<K, V>(map: Map<K, V>, key: K, value: V, sizeMax: number): void {
  map.delete(key);
  map.set(key, value);
  if (map.size <= sizeMax) return;
  const oldest = map.keys().next();
  if (oldest.done !== true) map.delete(oldest.value);
}
