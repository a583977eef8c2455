// The verdict on a partition: state, reclaimable bytes, obstacle and remedies.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { getJson, path, subscribe } from "./api.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { Badge, Command, directoryOption, Failure, Time } from "./parts.js";
import { render, renderAll } from "./reasons.js";

/** States with their labels and badges, most urgent first. */
export const STATES = {
  damaged: ["damaged", "bad"],
  uncleanable: ["uncleanable", "bad"],
  due: ["due", "warn"],
  waiting: ["waiting", "plain"],
  nothing_to_do: ["nothing to do", "plain"],
  not_compacted: ["not compacted", "plain"],
  unknown: ["unknown", "plain"],
};

/** States for which dry runs compute exact numbers. */
const CAN_BE_EXACT = ["due", "waiting", "nothing_to_do", "not_compacted"];

/** Buttons that apply a remedy. */
const BUTTONS = {
  "help.clean": "the button Clean below",
  "help.force": "the button Clean below",
  "help.roll": "the Clean button below, with a roll",
  "help.retain": "the Apply retention button below",
};

/** Format bytes or their upper bound: `4.0 KiB`, `at most 4.0 KiB`, `0 B`. */
function amount(bytes, atMost) {
  const known = bytes ?? atMost;
  return bytes == null && known > 0 ? `at most ${formatBytes(known)}` : formatBytes(known);
}

/** Bytes that can be freed now, and after a roll. */
export function frees(verdict) {
  return {
    now: amount(verdict.frees_bytes, verdict.frees_bytes_at_most),
    rolled: amount(verdict.frees_bytes_if_rolled, verdict.frees_bytes_if_rolled_at_most),
  };
}

/** The bytes that a pass or retention frees now, and after a roll; the list is sorted by them. */
export function removable({ removable_bytes: bytes, retention, ...verdict }) {
  const cell = (size, known) => `${size === 0 || size === known || size === retention.bytes ? "" : "≤ "}${formatBytes(size)}`;
  return { now: cell(bytes.now, verdict.frees_bytes), rolled: cell(bytes.if_rolled, verdict.frees_bytes_if_rolled) };
}

/** The verdict in one sentence; `size` is the size of the partition. */
export function sentence(verdict, size) {
  const { now, rolled } = frees(verdict);
  const records = verdict.frees_records > 0 ? `, ${plural(verdict.frees_records, "record")}` : "";
  const ofSize = `of ${formatBytes(size)}`;
  const afterRoll = rolled === now ? "" : `; ${rolled} if the active segment were rolled first`;
  switch (verdict.state) {
    case "due":
      return `A cleaning pass now frees ${now} ${ofSize}${records}${afterRoll}.`;
    case "waiting":
      return `No cleaning pass is due. A forced pass frees ${now} ${ofSize}${records}${afterRoll}.`;
    case "nothing_to_do":
      return "A cleaning pass would remove nothing.";
    case "not_compacted": {
      const { segments, bytes, reasons } = verdict.retention;
      return segments === 0
        ? "Not compacted. Retention has nothing to remove."
        : `Not compacted. Retention would remove ${plural(segments, "segment")}, ${formatBytes(bytes)} ${ofSize} (${renderAll(reasons)}).`;
    }
    case "unknown":
      return "The number of reclaimable bytes is unknown.";
    default:
      return `Cleaning passes stop at the damage. Without it, a pass frees ${now} ${ofSize}.`;
  }
}

/** A summary of all partitions: `17 partitions: 2 damaged, 5 due (free 3.9 of 4.4 MiB), …`. */
export function summarySentence(summary, unmeasured = 0) {
  // Partitions that are not measured yet are counted as unknown.
  const numbers = { ...summary, unknown: summary.unknown - unmeasured };
  const counts = Object.entries(STATES)
    .filter(([state]) => numbers[state] > 0)
    .map(([state, [words]]) => {
      const free = amount(summary.frees_bytes, summary.frees_bytes_at_most);
      const what = state === "due" ? ` (free ${free} of ${formatBytes(summary.bytes)})` : "";
      return `${formatCount(numbers[state])} ${words}${what}`;
    });
  if (unmeasured > 0) counts.push(`${formatCount(unmeasured)} not measured yet`);
  // Cleaning and retention may remove the same bytes.
  const ofDue = summary.retention_bytes_of_due > 0 ? `, ${formatBytes(summary.retention_bytes_of_due)} of it in partitions that are due` : "";
  const retention = summary.retention_bytes > 0 ? `; retention would remove ${formatBytes(summary.retention_bytes)}${ofDue}` : "";
  return `${plural(summary.partitions, "partition")}: ${counts.join(", ")}${retention}`;
}

/** Return a sentence about the partitions whose records were not read; empty if there are none. */
export function unreadSentence({ headers_only: unread, partitions }) {
  if (unread === 0) return "";
  return unread === partitions ? "Only batch headers were read." : `Records of ${plural(unread, "partition")} were not read.`;
}

export function StateBadge({ verdict }) {
  const [words, kind] = STATES[verdict.state];
  return html`<${Badge} kind=${kind} title=${render(verdict.reason)}>${words}</${Badge}>`;
}

/** The verdict at the top of a partition page, or only its first line with `isBrief`. */
export function Verdict({ topic, partition, detail, about, isBrief, onMeasured }) {
  const { verdict, size_bytes: size } = detail;
  const isOpen = verdict.state !== "damaged" && verdict.state !== "uncleanable";
  const reason = `${capital(render(verdict.reason))}.`;
  const [first, more] = reason.split(/ (?=First: )/);  // several damaged ranges
  const helps = remedies(verdict, about);
  const commands = helps.filter((line) => line.startsWith("logstore "));
  const others = helps.filter((line) => !line.startsWith("logstore "));
  return html`
    <section class=${`verdict is-${STATES[verdict.state][1]}`} aria-label="Verdict">
      <p class="verdict-line">
        <${StateBadge} verdict=${verdict} />${" "}
        <strong>${isOpen ? sentence(verdict, size) : first}</strong>
      </p>
      ${verdict.notes.map((note) => html`<p key=${note.code} class="verdict-line is-small is-note"><strong>Note:</strong> <span>${render(note)}.</span></p>`)}
      ${!isBrief && html`
        <p class="verdict-line is-small">
          <span>
            ${isOpen ? (verdict.state === "not_compacted" ? "" : reason) : `${more === undefined ? "" : `${more} `}${sentence(verdict, size)}`}
            ${verdict.since_ms != null && html` ${verdict.state === "uncleanable" ? "Since" : "Its oldest dirty data is from"} <${Time} ms=${verdict.since_ms} />.`}
            ${isOpen && isForeseen(detail.decision) && html` A running <${Opening} of=${detail.decision} nowMs=${about.clock?.now_ms} />.`}
          </span>
          ${!verdict.exact && CAN_BE_EXACT.includes(verdict.state) && html`<${Exact} topic=${topic} partition=${partition} onMeasured=${onMeasured} />`}
        </p>
        ${helps.length > 0 && html`<p class="helps-title">What helps${helps.length > 1 && verdict.state !== "damaged" && " (one is enough)"}:${others.length > 0 && ` ${others.join("; ")}.`}</p>`}
        ${commands.map((line) => html`
          ${purpose(line) !== null && html`<p class="explanation">${purpose(line)}</p>`}
          <${Command} key=${line} line=${`${line}${directoryOption(about)}`} />
        `)}
      `}
    </section>
  `;
}

/** What a command for a damaged partition does; null for other commands. */
export function purpose(line) {
  if (line.startsWith("logstore check")) return "Shows all damage, and changes nothing:";
  if (line.startsWith("logstore salvage")) return "Copies the intact records to DIR:";
  return null;
}

/** Whether a cleaning decision becomes due by itself, without an append or a command. */
export function isForeseen({ will_clean: isDue, opens_at_ms: ms }) {
  return !isDue && ms != null;
}

/** The time at which a foreseen cleaning is due, as text after "a running ". */
export function Opening({ of: { gates, opens_at_ms: ms }, nowMs }) {
  // A Kafka broker rolls a segment only at an append; logstore also rolls an idle one.
  const isRolled = gates?.some((gate) => gate.gate === "active_segment" && !gate.open);
  return html`${isRolled ? "logstore broker" : "cleaner"} would clean it at <${Time} ms=${ms} />${nowMs != null && `, in ${formatDuration(ms - nowMs)}`}`;
}

/** Commands and settings that help. While the broker runs, buttons replace the commands. */
export function remedies({ help_reasons: reasons }, { read_only: isCopy }) {
  const shown = reasons.map((reason) => (isCopy ? null : BUTTONS[reason.code]) ?? render(reason));
  return [...new Set(shown)];
}

function capital(text) {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

/** A button to compute the exact verdict by dry runs, with progress. */
function Exact({ topic, partition, onMeasured }) {
  const [state, setState] = useState({ isBusy: false, error: null, step: null });
  useEffect(
    () =>
      subscribe("measuring", (data) => {
        const step = data?.under_way.find((each) => each.topic === topic && each.partition === partition) ?? null;
        setState((before) => ({ ...before, step }));
      }),
    [topic, partition],
  );
  const compute = async () => {
    setState({ isBusy: true, error: null, step: null });
    let error = null;
    try {
      await getJson(`${path("partitions", topic, partition)}/verdict`);
      onMeasured();
    } catch (failure) {
      error = failure;
    }
    setState({ isBusy: false, error, step: null });
  };
  const { isBusy, error, step } = state;
  return html`
    ${" "}<button type="button" disabled=${isBusy} onClick=${compute}>${isBusy ? "Reading the log …" : "Compute exact values"}</button>
    ${isBusy && step?.bytes_total > 0 && html`<label class="exact-progress">
      <progress max="1" value=${step.bytes_done / step.bytes_total}></progress> ${formatRatio(step.bytes_done / step.bytes_total)} of ${formatBytes(step.bytes_total)}
    </label>`}
    ${error !== null && html`<${Failure} error=${error} />`}
  `;
}

/** A button to compute the exact verdicts of all listed partitions, one after another. */
export function ExactAll({ target, summary, onMeasured }) {
  const [state, setState] = useState(null);
  const [stopping] = useState(() => ({ isStopped: false }));
  useEffect(() => () => { stopping.isStopped = true; }, []);
  const compute = async () => {
    stopping.isStopped = false;
    for (let first = 0; first < summary.partitions && !stopping.isStopped; first += 1_000) {
      // Sort by name, because exact values change every other order.
      const { partitions } = await getJson(target(first, 1_000));
      for (const [index, { topic, partition }] of partitions.entries()) {
        if (stopping.isStopped) break;
        setState({ done: first + index, total: summary.partitions });
        // If it fails, the row shows the reason.
        await getJson(`${path("partitions", topic, partition)}/verdict`).catch(() => null);
        onMeasured();
      }
    }
    setState(null);
  };
  const stop = () => {
    stopping.isStopped = true;
  };
  if (state === null) return html`<button type="button" onClick=${compute}>Compute exact values</button>`;
  return html`
    <label class="exact-progress"><progress max=${state.total} value=${state.done}></progress> ${formatCount(state.done)} of ${plural(state.total, "partition")}</label>
    <button type="button" onClick=${stop}>Stop</button>
  `;
}
