// Parse durations and sizes as the command line does, to show the exact number next to a field.
// The server validates the input.

const UNITS_MS = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const UNITS_BYTES = { "": 1, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };
const INTEGER = /^[+-]?\d+$/;
const DURATION = /^(?:\d+(?:ms|[smhdw]))+$/;
const PART = /(\d+)(ms|[smhdw])/g;
const SIZE = /^(\d+) ?([KMGT]i)?B$/;

// Kafka's "no limit", 2^63 - 1, rounded by JavaScript.
const LONG_MAX = 2 ** 63;

/** Parse `1500`, `7d`, `12h` or `1d12h` to milliseconds; return null for anything else. */
export function parseDuration(text) {
  const trimmed = text.trim();
  if (INTEGER.test(trimmed)) return Number(trimmed);
  if (!DURATION.test(trimmed)) return null;
  let sum = 0;
  for (const [, count, unit] of trimmed.matchAll(PART)) sum += Number(count) * UNITS_MS[unit];
  return sum;
}

/** Parse `1024`, `512KiB` or `1GiB` to bytes; return null for anything else. */
export function parseSize(text) {
  const trimmed = text.trim();
  if (INTEGER.test(trimmed)) return Number(trimmed);
  const match = SIZE.exec(trimmed);
  return match === null ? null : Number(match[1]) * UNITS_BYTES[match[2] ?? ""];
}

/** Format a value for a field, with the largest unit that divides it. */
export function typed(text, unit) {
  const isShort = INTEGER.test(text ?? "") && Math.abs(Number(text)) <= Number.MAX_SAFE_INTEGER;
  if (!isShort) return text ?? "";
  if (unit === "ms") return typedDuration(Number(text));
  return unit === "bytes" ? typedSize(Number(text)) : text;
}

/** Return the exact number for a typed value, with its unit, or "" if it is invalid. */
export function exactly(text, unit) {
  if (text.trim() !== "" && Number(text) >= LONG_MAX) return "no limit";
  const number = unit === "ms" ? parseDuration(text) : unit === "bytes" ? parseSize(text) : null;
  if (number === null) return "";
  return number < 0 ? "no limit" : `= ${number.toLocaleString("en")} ${unit}`;
}

// `7d`, `90s`, `1500`.
function typedDuration(ms) {
  for (const unit of ["d", "h", "m", "s"]) {
    if (ms > 0 && ms % UNITS_MS[unit] === 0) return `${ms / UNITS_MS[unit]}${unit}`;
  }
  return String(ms);
}

// `1GiB`, `4KiB`, `1500`.
function typedSize(bytes) {
  for (const unit of ["Ti", "Gi", "Mi", "Ki"]) {
    if (bytes > 0 && bytes % UNITS_BYTES[unit] === 0) return `${bytes / UNITS_BYTES[unit]}${unit}B`;
  }
  return String(bytes);
}
