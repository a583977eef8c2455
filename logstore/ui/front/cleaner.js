// The cleaner: current and past passes, uncleanable partitions, and gauges over time.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { path, subscribe, useAnswer } from "./api.js";
import { Curves } from "./curves.js";
import { DialogButton, Done, may, RetryDialog } from "./actions.js";
import { useIdentity } from "./dialog.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { Badge, directoryOption, Empty, Facts, Requested, Rows, Time, useTitle } from "./parts.js";
import { FATES } from "./records.js";
import { hashOf } from "./routes.js";

/** Labels of pass phases. */
const PHASES = { map: "mapping keys", seed: "comparing versions", rewrite: "rewriting" };

/** Labels of Kafka's gauges. */
const GAUGES = {
  "max-dirty-percent": ["Maximum dirty ratio", "%"],
  "max-compaction-delay-secs": ["Maximum delay past max.compaction.lag.ms", "s"],
  "max-buffer-utilization-percent": ["Maximum offset map utilization", "%"],
  "cleaner-recopy-percent": ["Bytes written / bytes read", "%"],
  "max-clean-time-secs": ["Longest recent pass", "s"],
  "DeadThreadCount": ["Dead threads", ""],
};

/** Titles of the charts. */
const CURVES = {
  "size": "Size of all partitions",
  "max-dirty-percent": "Maximum dirty ratio",
  "max-compaction-delay": "Maximum compaction delay",
  "cleaner-recopy-percent": "Bytes written / bytes read",
  "uncleanable-partitions": "Uncleanable partitions",
  "cleaner-bytes-read": "Bytes read by the cleaner",
  "cleaner-bytes-written": "Bytes written by the cleaner",
};

const HISTORY_MAX = 50;
const PAST = ["When", "Partition", "Bytes", "Records", "Segments", "Duration", "Removed records"];

export function Page({ about }) {
  useTitle("Cleaner");
  return html`<h1>Cleaner</h1>
    <${Done} />
    <${about.read_only ? Copied : Running} about=${about} />`;
}

function Running({ about }) {
  const cleaner = useAnswer("cleaner", { on: ["cleaned", "partitions"] });
  const history = useAnswer("history", { on: ["cleaned", "clock"] });
  return html`
    <${Requested} of=${cleaner} what="The cleaner">
      ${(answer) => html`
        <${Now} answer=${answer} about=${about} />
        <${Uncleanable} found=${answer.uncleanable} about=${about} onDone=${cleaner.reload} />
        <${Gauges} gauges=${answer.gauges} series=${history.answer?.series ?? {}} />
        <${History} cleanings=${answer.history} />
      `}
    <//>`;
}

/** The gauges of a copied directory, as a cleaner would compute them. */
function Copied({ about }) {
  const cleaner = useAnswer("cleaner", { on: ["partitions"] });
  return html`
    <p class="summary">No cleaner runs here: ${about.read_only_because}. A cleaner would report:</p>
    <${Requested} of=${cleaner} what="The cleaner">
      ${({ gauges }) => html`
        <${Facts} facts=${[
          ["Partitions due for cleaning", formatCount(gauges["due-partitions"]), `of ${formatCount(gauges.partitions)}${gauges["measured-partitions"] < gauges.partitions ? `, ${formatCount(gauges["measured-partitions"])} measured so far` : ""}`],
          ["Maximum dirty ratio", `${formatCount(gauges["max-dirty-percent"])} %`, "max-dirty-percent"],
          ["Maximum delay past max.compaction.lag.ms", formatDuration(gauges["max-compaction-delay-secs"] * 1000), "max-compaction-delay-secs"],
        ]} />
        <p><a href=${hashOf([], { sort: "ratio" })}>Partitions by dirty ratio</a></p>
        <${Empty} line=${`logstore clean --dry-run${directoryOption(about)}`}>To see what cleaning would do, without changing any file:</${Empty}>
      `}
    <//>`;
}

// -- now -----------------------------------------------------------------------------------

function Now({ answer, about }) {
  const [steps, setSteps] = useState(answer.under_way);
  useEffect(() => setSteps(answer.under_way), [answer]);
  useEffect(() => subscribe("cleaning", (data) => setSteps(data.under_way)), []);
  return html`<section class="panel" aria-labelledby="cleaner-now">
    <h2 id="cleaner-now">Now</h2>
    <p role="status">${nowInWords(answer, steps, about)}</p>
    ${steps.map((step) => html`<${Step} key=${`${step.topic}-${step.partition}`} step=${step} />`)}
    <${Facts} facts=${factsOf(answer)} />
    ${answer.threads.length > 0 && html`<ul class="threads" aria-label="Threads">
      ${answer.threads.map((thread) => html`<li key=${thread.name}>${threadInWords(thread, steps)}</li>`)}
    </ul>`}
  </section>`;
}

function threadInWords({ name, alive, topic, partition, passes }, steps) {
  const isAtWork = steps.some((step) => step.topic === topic && step.partition === partition);
  const now = !alive ? "died" : isAtWork ? `cleans ${topic}-${partition}` : "waits";
  return `${name} ${now}; ${plural(passes, "pass", "passes")} so far.`;
}

function nowInWords({ enabled, threads }, steps, about) {
  if (steps.length > 0) return `${plural(steps.length, "partition")} being cleaned.`;
  if (about.read_only) return `The cleaner is off: ${about.read_only_because}.`;
  if (threads.length === 0) {
    return "No cleaner thread is running; use the Clean button on a partition page.";
  }
  if (!enabled) return "The cleaner's threads are idle: log.cleaner.enable is false.";
  return `${plural(threads.length, "thread")}, waiting for a partition to be due.`;
}

function Step({ step }) {
  const id = useIdentity("step");
  const name = `${step.topic}-${step.partition}`;
  const share = step.bytes_total > 0 ? step.bytes_done / step.bytes_total : 0;
  return html`<div class="step">
    <span id=${id}><a href=${hashOf(["t", step.topic, step.partition])}>${name}</a>: ${PHASES[step.phase] ?? step.phase}</span>
    <progress max="1" value=${share} aria-labelledby=${id}></progress>
    <span>${formatBytes(step.bytes_done)} of ${formatBytes(step.bytes_total)}, ${formatRatio(share)}</span>
  </div>`;
}

function factsOf({ threads, throttle }) {
  const dead = threads.filter((thread) => !thread.alive).length;
  const passes = threads.reduce((sum, thread) => sum + thread.passes, 0);
  const throttled = threads.reduce((sum, thread) => sum + thread.throttled_ms, 0);
  return [
    ["Threads", formatCount(threads.length), dead > 0 && `${formatCount(dead)} died`],
    ["Passes since startup", formatCount(passes)],
    ["Time throttled", formatDuration(throttled)],
    ["I/O limit", speed(throttle.both), "log.cleaner.io.max.bytes.per.second"],
    throttle.reads !== null && ["May read", speed(throttle.reads)],
    throttle.writes !== null && ["May write", speed(throttle.writes)],
  ];
}

function speed(limit) {
  return limit === null ? "none" : `${formatBytes(limit)}/s`;
}

// -- uncleanable partitions ----------------------------------------------------------------

function Uncleanable({ found, about, onDone }) {
  return html`<section class="panel" aria-labelledby="cleaner-uncleanable">
    <h2 id="cleaner-uncleanable">Uncleanable partitions</h2>
    ${found.length === 0
      ? html`<p>None.</p>`
      : html`<ul class="left-alone">
          ${found.map((mark) => html`<${LeftAlone} key=${`${mark.topic}-${mark.partition}`} mark=${mark}
            about=${about} onDone=${onDone} />`)}
        </ul>`}
  </section>`;
}

function LeftAlone({ mark, about, onDone }) {
  const { topic, partition } = mark;
  const name = `${topic}-${partition}`;
  const dialog = (onClose) => html`<${RetryDialog} topic=${topic} name=${name} onClose=${onClose}
    base=${path("partitions", topic, partition)} state=${{ uncleanable: mark }}
    links=${[[hashOf(["t", topic, partition]), `Show ${name}`]]} onDone=${onDone} />`;
  return html`<li>
    <a class="name" href=${hashOf(["t", topic, partition])}>${name}</a>
    <${Badge} kind="bad">uncleanable<//>
    ${mark.bytes !== null && html`<span>${formatBytes(mark.bytes)} to clean</span>`}
    ${may(about, "retry") && html`<${DialogButton} dialog=${dialog}>Retry
      <span class="unseen"> ${name}</span> …<//>`}
    <p>${mark.reason} (since <${Time} ms=${mark.since_ms} />)</p>
  </li>`;
}

// -- gauges --------------------------------------------------------------------------------

function Gauges({ gauges, series }) {
  const facts = Object.entries(GAUGES)
    .filter(([name]) => name in gauges)
    .map(([name, [title, unit]]) => [title, `${formatCount(gauges[name])} ${unit}`, name]);
  return html`<section class="panel" aria-labelledby="cleaner-gauges">
    <h2 id="cleaner-gauges">Gauges</h2>
    <${Facts} facts=${facts} />
    <${Curves} series=${series} titles=${CURVES} />
  </section>`;
}

// -- past ----------------------------------------------------------------------------------

function History({ cleanings }) {
  return html`<section class="panel" aria-labelledby="cleaner-history">
    <h2 id="cleaner-history">Past cleanings</h2>
    ${cleanings.length === 0
      ? html`<${Empty}>No cleaning passes since the broker started.<//>`
      : html`<${Rows} label="Past cleanings, newest first" headings=${PAST} numbers=${["Records", "Took"]}>
          ${cleanings.slice(0, HISTORY_MAX).map(
            (each) => html`<tr key=${`${each.topic}-${each.partition}-${each.at_ms}-${each.pass}`}>
              <td><${Time} ms=${each.at_ms} /></td>
              <th scope="row"><a href=${hashOf(["t", each.topic, each.partition])}>${each.topic}-${each.partition}</a></th>
              <td>${formatBytes(each.bytes_read)} → ${formatBytes(each.bytes_written)}</td>
              <td class="is-number">${formatCount(each.messages_read)} → ${formatCount(each.messages_written)}</td>
              <td>${formatCount(each.segments_before)} → ${formatCount(each.segments_after)}</td>
              <td class="is-number">${formatDuration(each.index_ms + each.clean_ms)}</td>
              <td><${Removed} fates=${each.fates} /></td>
            </tr>`,
          )}
        <//>`}
  </section>`;
}

/** Removed records by fate. */
function Removed({ fates }) {
  const removed = Object.entries(fates).filter(([fate, count]) => fate !== "retained" && count > 0);
  if (removed.length === 0) return "none removed";
  return removed.map(([fate, count]) => `${formatCount(count)} ${(FATES[fate] ?? [fate])[0]}`).join(", ");
}
