// Format numbers and times as the command line does.

const BINARY = ["KiB", "MiB", "GiB", "TiB"];
const SPANS = [["d", 86_400_000], ["h", 3_600_000], ["m", 60_000], ["s", 1_000], ["ms", 1]];

// Long.MAX_VALUE ("no limit" in Kafka) is not exact in JavaScript. All other numbers in answers are
// smaller than this.
const LIMITLESS = 2 ** 53;

const counts = new Intl.NumberFormat("en-US");
const sixteenths = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

/** `812 B`, `4.2 KiB`, `1.5 GiB`. */
export function formatBytes(bytes) {
  if (bytes == null) return "–";
  if (Math.abs(bytes) < 1024) return `${bytes} B`;
  let size = bytes;
  for (const unit of BINARY) {
    size /= 1024;
    if (Math.abs(size) < 1024 || unit === "TiB") return `${size.toFixed(1)} ${unit}`;
  }
  return "";
}

/** A number with thousands separators; `none` for Long.MAX_VALUE. */
export function formatCount(count) {
  if (count == null) return "–";
  return count >= LIMITLESS ? "none" : counts.format(count);
}

/** A number for the axis of a chart: `12 k`, `3.4 M`. */
export function formatShort(number) {
  const size = Math.abs(number);
  if (size >= 1e9) return `${sixteenths.format(number / 1e9)} G`;
  if (size >= 1e6) return `${sixteenths.format(number / 1e6)} M`;
  if (size >= 1e4) return `${sixteenths.format(number / 1e3)} k`;
  return sixteenths.format(number);
}

/** `1 record`, `2,000 records`. */
export function plural(count, noun, nouns = `${noun}s`) {
  return `${formatCount(count)} ${count === 1 ? noun : nouns}`;
}

/** A lag in records; `unknown` if the log end offset is unknown. */
export function formatLag(lag) {
  return lag == null ? "unknown" : formatCount(lag);
}

/** Total lag, and how many lags are unknown. */
export function lagInAll(lags) {
  const known = lags.filter((lag) => lag != null);
  const unknown = lags.length - known.length;
  if (known.length === 0) return "lag unknown";
  const sum = known.reduce((total, lag) => total + Math.max(0, lag), 0);
  const rest = unknown > 0 ? `, unknown for ${plural(unknown, "partition")}` : "";
  return `lag ${plural(sum, "record")} in all${rest}`;
}

/** A ratio as `42%`, with one decimal below 1%. */
export function formatRatio(ratio) {
  if (ratio == null) return "–";
  const share = ratio * 100;
  return `${share > 0 && share < 1 ? share.toFixed(1) : Math.round(share)}%`;
}

/** A duration in its two largest units, rounded down: `6d 23h`, `250ms`; `none` if unlimited. */
export function formatDuration(ms, units = 2) {
  if (ms == null) return "–";
  if (ms >= LIMITLESS) return "none";
  if (ms < 0) return `-${formatDuration(-ms, units)}`;
  const parts = [];
  let rest = Math.round(ms);
  for (const [unit, size] of SPANS) {
    if (rest >= size) {
      parts.push(`${Math.floor(rest / size)}${unit}`);
      rest %= size;
    }
  }
  return parts.slice(0, units).join(" ") || "0ms";
}

/** `2024-01-31 12:00:00.000Z`, or a dash if the time is negative or null. */
export function formatTime(ms) {
  if (ms == null || ms < 0) return "–";
  const moment = new Date(ms);
  if (Number.isNaN(moment.getTime())) return formatCount(ms);
  return moment.toISOString().replace("T", " ");
}

/** A local time with its UTC offset: `2024-01-31 13:00:00.000+01:00`. */
export function formatLocalTime(ms) {
  if (ms == null || ms < 0) return "–";
  const minutes = -new Date(ms).getTimezoneOffset();
  const moment = new Date(ms + minutes * 60_000);
  if (Number.isNaN(moment.getTime())) return formatCount(ms);
  const distance = `${pad(Math.abs(minutes) / 60)}:${pad(Math.abs(minutes) % 60)}`;
  return moment.toISOString().replace("T", " ").replace("Z", (minutes < 0 ? "-" : "+") + distance);
}

/** Whether local time differs from UTC. */
export function isLocalOther(ms) {
  return ms != null && new Date(ms).getTimezoneOffset() !== 0;
}

function pad(number) {
  return String(Math.floor(number)).padStart(2, "0");
}
