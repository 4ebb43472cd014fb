/**
 * Keeps requests away from private networks: an address is checked after the name was resolved and
 * before it is connected to, so no answer of a name server leads elsewhere.
 */
import { lookup } from "node:dns";
import { BlockList, isIP, type LookupFunction } from "node:net";

/** Networks that are not part of the public internet (RFC 6890 and its successors). */
const privateNetworks = [
  "0.0.0.0/8",
  "10.0.0.0/8",
  "100.64.0.0/10",
  "127.0.0.0/8",
  "169.254.0.0/16",
  "172.16.0.0/12",
  "192.0.0.0/24",
  "192.0.2.0/24",
  "192.88.99.0/24",
  "192.168.0.0/16",
  "198.18.0.0/15",
  "198.51.100.0/24",
  "203.0.113.0/24",
  "224.0.0.0/4",
  "240.0.0.0/4",
  // Those that stand for IPv4 addresses are private as a whole: translators could reach any.
  "::/127",
  "::ffff:0:0/96",
  "64:ff9b::/96",
  "64:ff9b:1::/48",
  "100::/64",
  "2001::/23",
  "2001:db8::/32",
  "2002::/16",
  "3fff::/20",
  "5f00::/16",
  "fc00::/7",
  "fe80::/10",
  "fec0::/10",
  "ff00::/8",
];

export function networkList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = "", prefix] = network.split("/");
    const family = isIP(address) === 6 ? "ipv6" : "ipv4";
    list.addSubnet(address, Number(prefix ?? (family === "ipv6" ? 128 : 32)), family);
  }
  return list;
}

const isPrivate = networkList(privateNetworks);

/** An address that may not be connected to. */
class PrivateAddressError extends Error {
  override readonly name = "PrivateAddressError";

  constructor(host: string, address: string) {
    const what = host === address ? address : `${host} has the address ${address}, which`;
    super(`${what} is in a private network that events.networks does not list`);
  }
}

/** Throws a `PrivateAddressError`, unless the address is public or in one of `allowed`. */
function requireAllowed(host: string, address: string, allowed: BlockList): void {
  // IPv4 in IPv6 is checked as what it is.
  const [, mapped] = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address) ?? [];
  const family = isIP(mapped ?? address) === 6 ? "ipv6" : "ipv4";
  const checked = mapped ?? address;
  if (isPrivate.check(checked, family) && !allowed.check(checked, family))
    throw new PrivateAddressError(host, address);
}

/** Checks a host that is an address: connections to it need no look-up. */
export function requireAllowedHost(hostname: string, allowed: BlockList): void {
  const address = hostname.replace(/^\[|\]$/g, "");
  if (isIP(address) !== 0) requireAllowed(address, address, allowed);
}

/** Resolves a name to allowed addresses. Fails if one of them is private. */
export function allowedLookup(allowed: BlockList): LookupFunction {
  return (hostname, options, callback) => {
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error !== null) return callback(error, []);
      try {
        for (const { address } of addresses) requireAllowed(hostname, address, allowed);
      } catch (refusal) {
        if (refusal instanceof Error) return callback(refusal, []);
        throw refusal;
      }
      if (options.all === true) return callback(null, addresses);
      const [first] = addresses;
      callback(null, first?.address ?? "", first?.family);
    });
  };
}
