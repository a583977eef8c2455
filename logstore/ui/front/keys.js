// Parse keys and positions that the user types.

/** Formats of typed keys, with examples. */
export const KEY_FORMATS = [
  ["text", "text", "user-17"],
  ["hex", "hex", "00ff17"],
  ["json", "JSON", '{"id": 17}'],
];

const INTEGER = /^\d+$/;
const MOMENT = /^@(-?\d+)$/;

/**
 * Return the query parameters for a typed key, `{key}` or `{key_base64}`, or null if it is invalid
 * or empty.
 *
 * A JSON string means its text. Other JSON is minified, as serializers write it.
 */
export function parseKey(format, text) {
  if (text === "") return null;
  if (format === "hex") return parseHex(text);
  if (format !== "json") return { key: text };
  try {
    const value = JSON.parse(text);
    return { key: typeof value === "string" ? value : compact(text) };
  } catch {
    return null;
  }
}

function parseHex(text) {
  const digits = text.replaceAll(/0x|[\s:,]/gi, "");
  if (digits === "" || digits.length % 2 || /[^0-9a-f]/i.test(digits)) return null;
  const bytes = digits.match(/../g).map((pair) => String.fromCharCode(parseInt(pair, 16)));
  return { key_base64: btoa(bytes.join("")) };
}

// Minify without parsing numbers, which would lose digits.
function compact(text) {
  return text.replaceAll(/("(?:[^"\\]|\\.)*")|\s+/g, "$1");
}

/** Return the page's query `{key, as}` for the key of a record, with `as` text or hex; null without
 * a key. */
export function keyQuery(record) {
  if (record.key_base64 !== undefined) {
    const bytes = [...atob(record.key_base64)];
    return { key: bytes.map((byte) => byte.charCodeAt(0).toString(16).padStart(2, "0")).join(""), as: "hex" };
  }
  return record.key == null ? null : { key: record.key, as: null };
}

/** Parse an offset, `@1704067200000` or an ISO 8601 time (default zone UTC) to `{offset}` or `{ms}`,
 * or return null. */
export function parsePosition(text) {
  const trimmed = text.trim();
  if (INTEGER.test(trimmed)) return { offset: Number(trimmed) };
  const moment = MOMENT.exec(trimmed);
  if (moment !== null) return { ms: Number(moment[1]) };
  if (!/^\d{4}-/.test(trimmed)) return null;
  const iso = trimmed.replace(" ", "T");
  const ms = Date.parse(/(Z|[+-]\d\d:?\d\d)$/i.test(iso) || !iso.includes("T") ? iso : `${iso}Z`);
  return Number.isNaN(ms) ? null : { ms };
}

const INDENTED_MAX = 256 * 1024;
const DEPTH_MAX = 32;

/** Indent JSON without changing its numbers; return null unless it is an object or array. */
export function indented(text) {
  if (text.length > INDENTED_MAX || !/^\s*[[{]/.test(text)) return null;
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let depth = 0;
  let lines = "";
  const line = () => `\n${" ".repeat(2 * Math.min(depth, DEPTH_MAX))}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[[\]{},:]|[^\s"[\]{},:]+/g)) {
    if (token === "{" || token === "[") {
      depth += 1;
      lines += token + line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      lines += line() + token;
    } else if (token === ",") lines += token + line();
    else lines += token === ":" ? ": " : token;
  }
  return lines.replaceAll(/([[{])\s+([\]}])/g, "$1$2");
}

/** Bytes as lines of `offset  hex  text`. */
export function hexLines(bytes, perLine = 16) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += perLine) {
    const part = [...bytes.slice(at, at + perLine)];
    const hex = part.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = part.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(3 * perLine - 1)}  ${text}`);
  }
  return lines.join("\n");
}
