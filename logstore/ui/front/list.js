// The list of partitions.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { withQuery } from "./api.js";
import { CreateTopic } from "./create.js";
import { Done } from "./actions.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { Badge, Bar, Empty, Failure, Loading, Setting, directoryOption, useTitle } from "./parts.js";
import { render } from "./reasons.js";
import { hashOf, replaceHash } from "./routes.js";
import { Table, usePieces } from "./table.js";
import { ExactAll, removable, StateBadge, summarySentence, unreadSentence } from "./verdict.js";

const ORDERS = [
  ["urgency", "Damaged, then reclaimable", true],
  ["frees", "Reclaimable now", true],
  ["rolled", "Reclaimable if rolled", true],
  ["damage", "State", true],
  ["name", "Name", false],
  ["bytes", "Bytes", true],
  ["segments", "Segments", true],
  ["ratio", "Dirty ratio", true],
  ["dirty", "Dirty bytes", true],
  ["delay", "Delay past the limit", true],
];
const FILTER_MS = 200;

export function Page({ params, about }) {
  useTitle("Partitions");
  return html`
    <h1>Partitions</h1>
    <${Notes} about=${about} />
    <${Done} />
    <${PartitionList} query=${params.query} about=${about} hash=${(query) => hashOf([], query)} />
  `;
}

/** Assumptions and warnings about a copied directory, as the command line prints them. */
function Notes({ about }) {
  const { notes } = about;
  if (notes.length === 0) return null;
  if (notes.length === 1) return html`<p class="notice is-warn">${notes[0]}</p>`;
  return html`
    <details class="notice is-warn notes">
      <summary>${notes[0]} <span class="dim">and ${plural(notes.length - 1, "other note")}</span></summary>
      <ul class="plain-list">${notes.slice(1).map((text) => html`<li key=${text}>${text}</li>`)}</ul>
    </details>
  `;
}

/** A list of partitions, of all topics or of `topic`. */
export function PartitionList({ query, about, topic, hash }) {
  const by = query.sort ?? "urgency";
  const descending =
    query.descending === undefined
      ? (ORDERS.find(([name]) => name === by)?.[2] ?? false)
      : query.descending === "1";
  const filter = query.filter ?? "";
  // Searches and topic pages include empty partitions.
  const omits = topic === undefined && !filter && query.empty !== "1";
  const target = (first, count) =>
    withQuery("partitions", { sort: by, descending: descending ? 1 : 0, filter, topic, empty: omits ? 0 : 1, first, count });
  const pieces = usePieces(target, (answer) => answer.partitions, {
    on: ["partitions", "cleaned", "clock"],
    // Measuring partitions costs more than refreshing the list.
    isUrgent: (answer) => answer.measured < answer.summary.partitions,
  });
  const { answer, error, total } = pieces;
  const isAny = total > 0 || emptyOf(answer) > 0;
  const columns = useMemo(() => columnsOf(topic), [topic]);
  const change = (parts) => {
    const next = { ...query, ...parts };
    replaceHash(hash(next));
  };
  const order = (name) => {
    const [, , first] = ORDERS.find(([other]) => other === name);
    change({ sort: name, descending: Number(name === by ? !descending : first) });
  };

  return html`
    ${isAny && html`<${Summary} answer=${answer} target=${(first, count) => withQuery("partitions", { sort: "name", filter, topic, first, count })} onMeasured=${pieces.reload} />`}
    ${(isAny || filter || !about.read_only) && html`<div class="tools" role="search">
      ${topic === undefined && html`<${Filter} value=${filter} onChange=${(text) => change({ filter: text })} />`}
      <label class="field">
        <span>Order</span>
        <select value=${by} onChange=${(event) => order(event.target.value)}>
          ${ORDERS.map(([name, title]) => html`<option key=${name} value=${name}>${title}</option>`)}
        </select>
      </label>
      <button
        type="button"
        aria-pressed=${descending}
        onClick=${() => change({ descending: Number(!descending) })}
      >
        ${by === "name" ? (descending ? "Z to A" : "A to Z") : descending ? "Most first" : "Least first"}
      </button>
      ${topic === undefined && !about.read_only && html`<${CreateTopic} about=${about} onDone=${pieces.reload} />`}
    </div>`}
    ${error !== null && html`<${Failure} error=${error} onRetry=${pieces.reload} what="Partitions" />`}
    ${total === null && error === null && html`<${Loading} what="Loading partitions" />`}
    ${total === 0 && !isAny && html`<${Nothing} filter=${filter} topic=${topic} about=${about} />`}
    ${total > 0 &&
    html`
      <${Table}
        label=${topic === undefined ? "Partitions" : `Partitions of ${topic}`}
        columns=${columns}
        total=${total}
        rowAt=${pieces.rowAt}
        keyOf=${nameOf}
        onNeed=${pieces.need}
        sort=${{ by, descending }}
        onSort=${order}
        isBusy=${pieces.isTurning}
      />
    `}
    ${answer !== null && (query.empty === "1" || emptyOf(answer) > 0) && html`<${EmptyPartitions} answer=${answer} onChange=${(empty) => change({ empty })} />`}
  `;
}

/** Number of empty partitions that are hidden. */
function emptyOf(answer) {
  return Object.values(answer?.empty ?? {}).reduce((sum, count) => sum + count, 0);
}

/** A sentence about topics with hidden empty partitions. */
export function emptySentence(empty) {
  const topics = Object.entries(empty);
  const named = topics.slice(0, 5).map(([topic, count]) => `${formatCount(count)} in ${topic}`);
  const more = topics.length > 5 ? ` and others in ${plural(topics.length - 5, "topic")}` : "";
  return `${plural(emptyOf({ empty }), "empty partition")} with nothing to do: ${named.join(", ")}${more}.`;
}

function EmptyPartitions({ answer, onChange }) {
  const isOmitted = emptyOf(answer) > 0;
  return html`
    <div class="result-line">
      ${isOmitted && html`<p>${emptySentence(answer.empty)}</p>`}
      <button type="button" onClick=${() => onChange(isOmitted ? "1" : undefined)}>
        ${isOmitted ? "List them too" : "Hide empty partitions"}
      </button>
    </div>
  `;
}

function nameOf(row) {
  return row === undefined ? null : `${row.topic}-${row.partition}`;
}

/** A summary of the whole list. */
function Summary({ answer, target, onMeasured }) {
  const { measured, summary } = answer;
  const total = summary.partitions;
  const exactly = answer.is_exact ? "" : "Computing exact values reads the records of compacted topics, which also finds damage.";
  const hints = [unreadSentence(summary), exactly].filter(Boolean);
  return html`
    <div class="result-line summary-line">
      <p role="status">
        <strong>${summarySentence(summary, total - measured)}</strong>
      </p>
      ${measured === total && hints.length > 0 && html`<p>${hints.join(" ")}</p>`}
      ${summary.partitions > summary.unknown && !answer.is_exact && html`<${ExactAll} target=${target} summary=${summary} onMeasured=${onMeasured} />`}
    </div>
  `;
}

function Filter({ value, onChange }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(typed), FILTER_MS);
  };
  return html`
    <label class="field is-wide">
      <span>Filter</span>
      <input type="search" value=${text} onInput=${type} placeholder="e.g. users" autocomplete="off" spellcheck="false" />
    </label>
  `;
}

function Nothing({ filter, topic, about }) {
  if (topic !== undefined) {
    return html`<${Empty}>Topic ${topic} does not exist. <a href=${hashOf()}>All partitions</a></${Empty}>`;
  }
  if (filter) return html`<${Empty}>No partition name contains “${filter}”.</${Empty}>`;
  if (about.read_only) {
    return html`
      <${Empty} line=${`logstore check${directoryOption(about)}`}>
        There are no partitions in this directory. Partition folders are named TOPIC-NUMBER, such as
        users-0. To check the directory:
      </${Empty}>
    `;
  }
  return html`
    <${Empty} line=${`broker.create_topic("users", partitions=1, configs={"cleanup.policy": "compact"})`}>
      There are no topics yet. Create one here, with a client, or in the program that opened the broker:
    </${Empty}>
  `;
}

// -- columns -------------------------------------------------------------------------------

function columnsOf(topic) {
  return [
    {
      name: "name",
      title: "Partition",
      width: "minmax(9rem, 3fr)",
      sort: "name",
      isHeader: true,
      hasControl: true,
      draw: (row, tabIndex) => html`
        <a class="name" href=${hashOf(["t", row.topic, row.partition])} tabindex=${tabIndex}
          >${topic === undefined ? row.topic : "partition"}<wbr /><span class="name-number">${topic === undefined ? "-" : " "}${row.partition}</span></a
        >
      `,
    },
    {
      name: "state",
      title: "State",
      width: "minmax(8rem, 1fr)",
      sort: "damage",
      draw: (row) => html`<${State} row=${row} />`,
    },
    {
      name: "frees",
      title: "Reclaimable",
      width: "minmax(8rem, .7fr)",
      sort: "frees",
      isNumber: true,
      draw: (row) => html`<${Frees} row=${row} what="now" />`,
    },
    {
      name: "rolled",
      title: "If rolled",
      width: "minmax(6rem, .6fr)",
      sort: "rolled",
      isNumber: true,
      draw: (row) => html`<${Frees} row=${row} what="rolled" />`,
    },
    {
      name: "size",
      title: "Size",
      width: "minmax(5.5rem, .7fr)",
      sort: "bytes",
      isNumber: true,
      draw: (row) => html`
        ${formatBytes(row.size_bytes)}
        ${row.deleted_bytes > 0 && html`<span class="dim"> + ${formatBytes(row.deleted_bytes)} deleted</span>`}
      `,
    },
    {
      name: "ratio",
      title: "Dirty ratio",
      width: "minmax(12.5rem, 1.2fr)",
      sort: "ratio",
      draw: (row) => html`<${Ratio} row=${row} />`,
    },
    {
      name: "delay",
      title: "Delay and limit",
      width: "minmax(12.5rem, 1.2fr)",
      sort: "delay",
      draw: (row) => html`<${Delay} row=${row} />`,
    },
    {
      name: "policy",
      title: "Policy",
      width: "minmax(6.5rem, .9fr)",
      draw: (row) => html`<${Policy} row=${row} />`,
    },
  ];
}

/** The cleanup policy, which is assumed if a copied directory has no topic config. */
export function Policy({ row }) {
  const policy = row.cleanup_policy?.replaceAll(",", ", ") || "none";
  return row.is_policy_assumed ? html`${policy} <span class="dim">(assumed)</span>` : policy;
}

export function State({ row }) {
  if (row.in_progress != null) return html`<${Badge} kind="busy">${row.in_progress}</${Badge}>`;
  if (row.verdict == null) return html`<span class="dim">${row.error ?? "not measured yet"}</span>`;
  const { state } = row.verdict;
  return html`
    <${StateBadge} verdict=${row.verdict} />
    ${row.uncleanable != null && state !== "uncleanable" && html` <${Badge} kind="bad" title=${row.uncleanable.reason}>uncleanable</${Badge}>`}
    ${row.verdict.examined != null && state !== "damaged" && row.size_bytes > 0 && html`<span class="explanation">${row.verdict.examined} read</span>`}
    ${row.verdict.notes.length > 0 && html`<span class="explanation is-warn" title=${row.verdict.notes.map(render).join("; ")}>a segment may be lost</span>`}
  `;
}

/** The bytes that a pass or retention frees `now`, or if the active segment were `rolled` first. */
function Frees({ row, what }) {
  if (row.verdict == null) return html`<span class="dim">–</span>`;
  if (row.verdict.state === "unknown") return html`<span class="dim">unknown</span>`;
  const amount = removable(row.verdict)[what];
  return html`<span class=${amount === "0 B" ? "dim" : ""}>${amount}</span>`;
}

function Ratio({ row }) {
  if (row.cleanable_ratio == null) {
    return html`<span class="dim">${/compact/.test(row.cleanup_policy) ? "–" : "not compacted"}</span>`;
  }
  return html`
    <span class="bar-with-words">
      <${Bar} share=${row.cleanable_ratio} kind="dirty" mark=${row.min_cleanable_dirty_ratio} />
      <span>${formatRatio(row.cleanable_ratio)}${row.dirty_bytes != null && html` <span class="dim">${formatBytes(row.dirty_bytes)}</span>`}</span>
    </span>
    <${Setting} name="min.cleanable.dirty.ratio" value=${row.min_cleanable_dirty_ratio} />
  `;
}

/** Age of the oldest uncleaned data compared with `max.compaction.lag.ms` (KIP-354). */
export function Delay({ row }) {
  const bound = row.max_compaction_lag_ms;
  const isBound = bound != null && bound > 0 && bound < 2 ** 53;
  const lag = row.lag_ms ?? (row.max_compaction_delay_ms > 0 && isBound ? bound + row.max_compaction_delay_ms : null);
  if (!/\bcompact\b/.test(row.cleanup_policy ?? "")) return html`<span class="dim">not compacted</span>`;
  if (!isBound) return html`<span class="dim">${lag ? `${formatDuration(lag)}, ` : ""}no limit</span>`;
  const limit = html`<${Setting} name="max.compaction.lag.ms" value=${formatDuration(bound)} />`;
  if (lag === null) return html`<span class="dim">–</span>${limit}`;
  const over = lag - bound;
  const words = over > 0 ? `${formatDuration(over)} past the limit` : formatDuration(lag);
  // Draw the limit at two thirds of the bar, to leave room for larger values.
  return html`
    <span class="bar-with-words">
      <${Bar} share=${(lag / bound) * (2 / 3)} kind=${over > 0 ? "over" : "lag"} mark=${2 / 3} />
      <span class=${over > 0 ? "is-over" : ""}>${words}</span>
    </span>
    ${limit}
  `;
}
