// Addresses of pages, as URL fragments.

const NAMED = new Set(["cleaner", "groups", "broker"]);

/**
 * Parse a fragment.
 *
 * `key` identifies the page, regardless of section and query.
 */
export function parseHash(hash) {
  const [, place = "", search = ""] = /^#?\/?([^?]*)\??(.*)$/s.exec(hash);
  const parts = place.split("/").filter(Boolean).map(decoded);
  const query = Object.fromEntries(new URLSearchParams(search));
  if (parts[0] === "t" && parts.length > 1) {
    const [, topic, second, section = null] = parts;
    if (second === "settings") return route("settings", { topic, query });
    if (second !== undefined && /^\d+$/.test(second)) {
      return route("partition", { topic, partition: Number(second), section, query });
    }
    return route("topic", { topic, query });
  }
  if (NAMED.has(parts[0])) return route(parts[0], { section: parts[1] ?? null, query });
  return route("list", { query });
}

/** Return the fragment of a page: `hashOf(["t", topic, 0], {from: 5})`. The list has no parts. */
export function hashOf(parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "");
  const search = new URLSearchParams(given).toString();
  return `#/${parts.map(encodeURIComponent).join("/")}${search && `?${search}`}`;
}

/** Change the address without a history entry, for example while the user types a filter. */
export function replaceHash(hash) {
  if (hash === location.hash) return;
  history.replaceState(null, "", hash);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

function route(page, params) {
  return { page, params, key: JSON.stringify([page, params.topic, params.partition]) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
