// Sentences for the reasons of the server, which are codes with values. The command line prints the
// same sentences (`logstore.reasons`).

import { formatCount, formatDuration, formatTime } from "./format.js";
import { TEMPLATES } from "./templates.js";
import { typed } from "./units.js";

// From here on JavaScript rounds whole numbers; Kafka's 2^63 - 1 means "no limit".
const EXACT_MAX = 2 ** 53;

/** The sentence of a `{code, values, text}`; its `text` if the code is unknown here, or a value is
 * missing. */
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

/** Several reasons as one text. */
export function renderAll(reasons, separator = "; ") {
  return reasons.map(render).join(separator);
}

/** The words of a code without values, as `words("condition", "policy")`. */
export function words(group, name) {
  return render({ code: `${group}.${name}`, text: name });
}

/** A value as people read it; its name gives its kind, as in Python's `format_value`. */
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

// `7d`, `90s`, `1500ms`: exactly, as it was set.
function formatSetting(ms) {
  const text = typed(String(ms), "ms");
  return text === String(ms) ? `${text}ms` : text;
}
