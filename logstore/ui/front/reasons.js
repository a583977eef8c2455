// Render reasons. The server sends codes with values; the sentences are the command line's
// (`logstore.reasons`).

import { formatCount, formatDuration, formatTime } from "./format.js";
import { TEMPLATES } from "./templates.js";
import { typed } from "./units.js";

// JavaScript rounds larger integers. Only Kafka's 2^63 - 1 ("no limit") is larger.
const EXACT_MAX = 2 ** 53;

/** Render a reason `{code, values, text}` as a sentence; `text` is the fallback for unknown codes
 * and missing values. */
export function render({ code, values, text }) {
  if (!Object.hasOwn(TEMPLATES, code)) return text;
  const parts = TEMPLATES[code].replaceAll("}", "{").split("{");
  for (let slot = 1; slot < parts.length; slot += 2) {
    const [name, words] = parts[slot].split("?");
    const value = values?.[name];
    if (value === undefined) return text;
    if (words === undefined) parts[slot] = formatValue(name, value);
    else parts[slot] = words.split("|")[value === 1 ? 0 : 1];
  }
  return parts.join("");
}

/** Render several reasons as one text. */
export function renderAll(reasons, separator = "; ") {
  return reasons.map(render).join(separator);
}

/** Render a code without values: `words("condition", "policy")`. */
export function words(group, name) {
  return render({ code: `${group}.${name}`, text: name });
}

/** Format a value by its name, as `format_value` does in Python. */
function formatValue(name, value) {
  if (value === null) return "none";
  if (typeof value === "string") return value;
  if (value >= EXACT_MAX) return "unlimited";
  if (name.endsWith("ratio")) return String(Math.floor(value * 10_000 + 0.5) / 10_000);
  if (name.endsWith("at_ms")) return value < 0 ? "-" : formatTime(value);
  if (name.endsWith("span_ms")) return formatDuration(value);
  if (name.endsWith("_ms")) return formatSetting(value);
  return name.endsWith("offset") || name.endsWith("_id") ? String(value) : formatCount(value);
}

// `7d`, `90s`, `1500ms`: exact, as in configs.
function formatSetting(ms) {
  const text = typed(String(ms), "ms");
  return text === String(ms) ? `${text}ms` : text;
}
