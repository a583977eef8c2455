// Records: a browser by offset and time, the batches of a segment, and the fates of records.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { Field, Headers } from "./bytes.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { Badge, Bar, Empty, Facts, Time, quoted, Requested } from "./parts.js";
import { render } from "./reasons.js";
import { hashOf, replaceHash } from "./routes.js";

const PAGE = 50;
const BATCH = ["First offset", "Last offset", "Records", "Size", "Latest timestamp", "Attributes", "Open"];
const HORIZONS = ["Segment", "Tombstones", "Without a horizon", "Past it", "First horizon", "Last horizon"];

/** A small table that scrolls horizontally if necessary; with `stacks`, the cells of a row are
 * stacked instead, each labelled by its `data-title`. `numbers` lists the numeric columns. */
export function Rows({ label, headings, numbers = [], stacks = false, children }) {
  return html`
    <div class=${stacks ? "rows is-stacking" : "rows"} role="region" aria-label=${label} tabindex="0">
      <table>
        <thead>
          <tr>${headings.map((heading) => html`<th key=${heading} scope="col" class=${numbers.includes(heading) ? "is-number" : ""}>${heading}</th>`)}</tr>
        </thead>
        <tbody>${children}</tbody>
      </table>
    </div>
  `;
}

function RecordRow({ record }) {
  const isTombstone = record.value == null && record.value_base64 === undefined;
  return html`
    <tr>
      <td class="is-number" data-title="Offset">${formatCount(record.offset)}</td>
      <td data-title="Timestamp"><${Time} ms=${record.timestamp} />${record.timestamp_type === 1 && html`<span class="explanation">of the append</span>`}</td>
      <td data-title="Key"><${Field} record=${record} name="key" nullWord="no key" /></td>
      <td class="is-value" data-title="Value">
        ${record.control != null
          ? html`<${Badge}>${typeof record.control === "string" ? record.control : "marker"}</${Badge}>`
          : isTombstone
            ? html`<${Badge} kind="plain">tombstone</${Badge}>`
            : html`<${Field} record=${record} name="value" />`}
        <${Headers} headers=${record.headers} />
      </td>
    </tr>
  `;
}

export function RecordRows({ records, label = "Records" }) {
  return html`
    <${Rows} stacks label=${label} headings=${["Offset", "Timestamp", "Key", "Value"]} numbers=${["Offset"]}>
      ${records.map((record) => html`<${RecordRow} key=${record.offset} record=${record} />`)}
    </${Rows}>
  `;
}

// -- the browser ---------------------------------------------------------------------------

/** Milliseconds of a typed time: Unix ms, or ISO 8601 (default zone: UTC). */
function parseTime(text) {
  const trimmed = text.trim();
  if (/^-?\d{5,}$/.test(trimmed)) return Number(trimmed);
  if (!/^\d{4}/.test(trimmed)) return null;
  const iso = trimmed.replace(" ", "T");
  const ms = Date.parse(/(Z|[+-]\d\d:?\d\d)$/i.test(iso) || !iso.includes("T") ? iso : `${iso}Z`);
  return Number.isNaN(ms) ? null : ms;
}

export function RecordBrowser({ topic, partition, query, start, end, about, isMeant }) {
  const here = ["t", topic, partition, "records"];
  const from = query.from ?? null;
  const at = query.time ?? null;
  const [offsetText, setOffsetText] = useState(from ?? "");
  const [timeText, setTimeText] = useState(at ?? "");
  const [complaint, setComplaint] = useState(null);
  useEffect(() => setOffsetText(from ?? ""), [from]);
  const time = at === null ? null : parseTime(at);
  const target = withQuery(`${path("partitions", topic, partition)}/records`, {
    from_offset: at === null ? (from ?? start) : null,
    from_timestamp: time,
    count: PAGE,
  });
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant });
  const records = request.answer?.records ?? [];
  const first = records[0]?.offset;
  // There may be valid records after damage, so the user can skip it.
  const over = request.error === null ? null : Number(from ?? start) + PAGE;
  const next = over ?? request.answer?.next_offset ?? null;

  const go = (parts) => replaceHash(hashOf(here, parts));
  const submit = (event) => {
    event.preventDefault();
    setComplaint(null);
    if (timeText.trim() !== "" && timeText !== at) {
      if (parseTime(timeText) === null) {
        setComplaint(`“${timeText}” is not a time. Enter 2024-01-31, 2024-01-31 12:00, or Unix milliseconds.`);
        return;
      }
      go({ time: timeText.trim() });
      return;
    }
    if (!/^\d+$/.test(offsetText.trim())) {
      setComplaint(`“${offsetText}” is not an offset. Enter an integer from ${formatCount(start)} to ${formatCount(end)}.`);
      return;
    }
    setTimeText("");
    go({ from: offsetText.trim() });
  };
  const jump = (offset) => {
    setTimeText("");
    setComplaint(null);
    go({ from: Math.max(start, offset) });
  };

  return html`
    <form class="tools" onSubmit=${submit}>
      <label class="field">
        <span>From offset</span>
        <input inputmode="numeric" value=${offsetText} placeholder=${String(start)} onInput=${(event) => setOffsetText(event.target.value)} />
      </label>
      <label class="field">
        <span>or from a time (UTC)</span>
        <input value=${timeText} placeholder="2024-01-31 12:00" onInput=${(event) => setTimeText(event.target.value)} />
      </label>
      <button type="submit">Show</button>
      <button type="button" onClick=${() => jump(start)}>First</button>
      <button type="button" onClick=${() => jump((first ?? end) - PAGE)} disabled=${first === undefined ? end <= start : first <= start}>Earlier</button>
      <button type="button" onClick=${() => jump(next)} disabled=${next === null || next >= end}>Later</button>
      <button type="button" onClick=${() => jump(end - PAGE)}>Last</button>
    </form>
    ${complaint !== null && html`<p class="complaint" role="alert">${complaint}</p>`}
    <${Requested} of=${request} what="Records">
      ${() =>
        records.length === 0
          ? html`
              <${Empty} line=${end > start ? null : appendLine(topic, partition, about)}>
                ${end > start
                  ? "No records at or after this position."
                  : about.read_only
                    ? "This partition is empty. In the original directory, a client or the command line appends records:"
                    : "This partition is empty. A client, or the program that opened the broker, appends records:"}
              </${Empty}>
            `
          : html`
              <p class="dim" role="status">${plural(records.length, "record")}, offsets ${formatCount(first)} to ${formatCount(records.at(-1).offset)}</p>
              <${RecordRows} records=${records} />
            `}
    </${Requested}>
  `;
}

// The command line cannot write to a directory that a broker has open, so Python code is shown.
function appendLine(topic, partition, about) {
  if (!about.read_only) {
    return `broker.append(${JSON.stringify(topic)}, key=b"1", value=b"ann", partition=${partition})`;
  }
  return `echo '{"key": "1", "value": "ann"}' | logstore append ${quoted(topic)} --partition ${partition}`;
}

// -- segments, opened ----------------------------------------------------------------------

/** One page of a list, with links to the others. */
function Pager({ first, shown, total, onGo, what }) {
  if (total <= PAGE) return null;
  return html`
    <div class="pager">
      <button type="button" onClick=${() => onGo(Math.max(0, first - PAGE))} disabled=${first === 0}>Earlier ${what}</button>
      <span role="status">${formatCount(first + 1)} to ${formatCount(first + shown)} of ${formatCount(total)}</span>
      <button type="button" onClick=${() => onGo(first + PAGE)} disabled=${first + shown >= total}>Later ${what}</button>
    </div>
  `;
}

/** A segment: its facts and its batches, which expand to their records. */
export function Segment({ topic, partition, segment, onClose }) {
  const [first, setFirst] = useState(0);
  const base = segment.base_offset;
  const target = withQuery(`${path("partitions", topic, partition, "segments", base)}/batches`, { first, count: PAGE });
  const request = useAnswer(segment.deleted ? null : target);
  const title = useRef(null);
  useEffect(() => title.current.focus(), []);
  return html`
    <section class="panel" aria-labelledby="segment-title">
      <div class="heading">
        <h2 id="segment-title" tabindex="-1" ref=${title}>Segment ${formatCount(base)}</h2>
        <button type="button" onClick=${onClose}>Close</button>
      </div>
      <${Facts}
        facts=${[
          ["Section", segment.deleted ? "deleted, pending removal" : segment.section],
          ["Offsets", `${formatCount(base)} to ${formatCount(segment.last_offset)}`],
          ["Size", formatBytes(segment.size_bytes)],
          segment.records != null && ["Records", formatCount(segment.records), `in ${plural(segment.batches, "batch", "batches")}`],
          segment.holes != null && ["Offsets gone", formatCount(segment.holes)],
          segment.tombstones != null && ["Tombstones", formatCount(segment.tombstones)],
          ["Latest timestamp", html`<${Time} ms=${segment.max_timestamp} both />`],
          segment.delete_horizon_ms != null && ["Delete horizon", html`<${Time} ms=${segment.delete_horizon_ms} both />`, "tombstones are removed by the first cleaning pass after it"],
        ]}
      />
      ${!segment.deleted && html`
        <h3 class="spaced">Batches</h3>
        <${Requested} of=${request} what="Batches">
          ${(answer) =>
            answer.batches.length === 0
              ? html`<${Empty}>This segment has no batches.</${Empty}>`
              : html`
                  <${Rows} label=${`Batches of segment ${base}`} headings=${BATCH} numbers=${BATCH.slice(0, 4)}>
                    ${answer.batches.map((batch) => html`<${Batch} key=${batch.baseOffset} batch=${batch} topic=${topic} partition=${partition} />`)}
                  </${Rows}>
                  <${Pager} first=${first} shown=${answer.batches.length} total=${segment.batches} onGo=${setFirst} what="batches" />
                `}
        </${Requested}>
      `}
    </section>
  `;
}

function Batch({ batch, topic, partition }) {
  const [isOpen, setOpen] = useState(false);
  const target = `${path("partitions", topic, partition, "batches", batch.baseOffset)}/records`;
  const request = useAnswer(isOpen ? target : null);
  const words = [
    batch.compresscodec !== "none" && batch.compresscodec,
    batch.isTransactional && "transactional",
    batch.isControl && "marker",
    batch.producerId >= 0 && `producer ${batch.producerId}, sequence ${batch.baseSequence}`,
    batch.magic < 2 && `format ${batch.magic}`,
  ].filter(Boolean);
  return html`
    <tr>
      <td class="is-number">${formatCount(batch.baseOffset)}</td>
      <td class="is-number">${formatCount(batch.lastOffset)}</td>
      <td class="is-number">${formatCount(batch.count)}</td>
      <td class="is-number">${formatBytes(batch.size)}</td>
      <td><${Time} ms=${batch.maxTimestamp} /></td>
      <td>
        ${batch.isvalid === false && html`<${Badge} kind="bad">damaged</${Badge}> `}
        ${words.join(", ") || html`<span class="dim">plain</span>`}
        ${batch.deleteHorizonMs != null && html`<span class="explanation">delete horizon <${Time} ms=${batch.deleteHorizonMs} /></span>`}
      </td>
      <td>
        <button type="button" class="quiet" aria-expanded=${isOpen} aria-label=${`Records of the batch at ${batch.baseOffset}`} onClick=${() => setOpen(!isOpen)}>
          ${isOpen ? "Close" : "Records"}
        </button>
      </td>
    </tr>
    ${isOpen && html`
      <tr class="opened">
        <td colspan="7">
          <${Requested} of=${request} what="Records">
            ${(answer) => html`<${RecordRows} records=${answer.records} label=${`Records of the batch at ${batch.baseOffset}`} />`}
          </${Requested}>
        </td>
      </tr>
    `}
  `;
}

// -- tombstones ----------------------------------------------------------------------------

export function Tombstones({ topic, partition, nowMs, isMeant, isCostly }) {
  const target = `${path("partitions", topic, partition)}/tombstones`;
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant, isCostly });
  return html`
    <p class="dim">
      A tombstone is a record without a value: it deletes its key. Its first cleaning pass keeps it and sets
      the delete horizon of its batch to the time of the cleaning pass + delete.retention.ms. The first
      cleaning after the horizon removes it. Superseded tombstones are not counted: they are removed
      like any superseded record.
    </p>
    <${Requested} of=${request} what="Tombstones">
      ${(answer) => html`<${TombstoneFacts} answer=${answer} nowMs=${answer.now_ms ?? nowMs} />`}
    </${Requested}>
  `;
}

function TombstoneFacts({ answer, nowMs }) {
  const found = answer.tombstones;
  if (found == null) return html`<${Empty}>This topic is not compacted, so tombstones have no effect.</${Empty}>`;
  if (found.records === 0) return html`<${Empty}>No tombstone in this partition is the latest record of its key.</${Empty}>`;
  const stamped = found.records - found.unstamped - found.expired;
  const showTime = (ms) => html`<${Time} ms=${ms} both />`;
  const horizon = (ms) => (ms == null ? "–" : html`<${Time} ms=${ms} />, ${away(ms)}`);
  const away = (ms) => nowMs != null && (ms <= nowMs ? "passed" : `in ${formatDuration(ms - nowMs)}`);
  return html`
    <${Facts}
      facts=${[
        ["Tombstones", formatCount(found.records)],
        ["Without a horizon", formatCount(found.unstamped), "set by their first cleaning pass"],
        ["Before their horizon", formatCount(stamped), "kept by every cleaning pass"],
        ["Past their horizon", formatCount(found.expired), "removed by the next pass that reaches them"],
        found.unreached > 0 && ["Not reached", formatCount(found.unreached), "beyond the cleaning pass that is due"],
        found.first_horizon_ms != null && ["First horizon", showTime(found.first_horizon_ms), away(found.first_horizon_ms)],
        found.last_horizon_ms != null && ["Last horizon", showTime(found.last_horizon_ms), away(found.last_horizon_ms)],
        answer.delete_retention_ms != null && ["delete.retention.ms", formatDuration(answer.delete_retention_ms)],
      ]}
    />
    <ul class="plain-list">${found.reasons.map((reason) => html`<li>${render(reason)}</li>`)}</ul>
    ${answer.segments?.length > 0 && html`
      <h3>By segment</h3>
      <${Rows} label="Segments with tombstones" headings=${HORIZONS} numbers=${HORIZONS.slice(0, 4)}>
        ${answer.segments.map((each) => html`
          <tr key=${each.base_offset}>
            <td class="is-number">${formatCount(each.base_offset)}</td>
            <td class="is-number">${formatCount(each.records)}</td>
            <td class="is-number">${formatCount(each.unstamped)}</td>
            <td class="is-number">${formatCount(each.expired)}</td>
            <td>${horizon(each.first_horizon_ms)}</td>
            <td>${horizon(each.last_horizon_ms)}</td>
          </tr>
        `)}
      </${Rows}>
    `}
  `;
}

// -- fates ---------------------------------------------------------------------------------

/** The fate of a record in the next cleaning pass: short and long text. */
export const FATES = {
  retained: ["kept", "the latest of its key, or not cleanable"],
  superseded: ["superseded", "a later record of its key survives"],
  tombstone_expired: ["tombstone, expired", "past its delete horizon"],
  aborted: ["aborted", "its transaction was aborted"],
  control_expired: ["marker, expired", "the records of its transaction are removed"],
  null_key: ["no key", "compaction removes records without a key"],
  below_log_start: ["below the log start", "already deleted for readers"],
  active: ["in the active segment", "not cleaned until it is rolled"],
  not_yet_cleanable: ["not cleanable yet", "too recent, or after an open transaction"],
};

export function Fates({ topic, partition, isMeant, isCostly }) {
  const [first, setFirst] = useState(0);
  const target = withQuery(`${path("partitions", topic, partition)}/fates`, { first, count: PAGE });
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant, isCostly });
  return html`
    <p class="dim">The fate of each record in a cleaning pass that runs now.</p>
    <${Requested} of=${request} what="Fates">
      ${(answer) => html`
        ${answer.counts != null && html`<${FateCounts} counts=${answer.counts} />`}
        ${answer.fates.length === 0
          ? html`<${Empty}>There are no records in this partition.</${Empty}>`
          : html`
              <${Rows} label="Fates of records" headings=${["Offset", "Key", "Fate", "Superseded by"]} numbers=${["Offset", "Superseded by"]}>
                ${answer.fates.map((row) => html`
                  <tr key=${row.offset}>
                    <td class="is-number">${formatCount(row.offset)}</td>
                    <td><${Field} record=${row} name="key" nullWord="no key" /></td>
                    <td>${(FATES[row.fate] ?? [row.fate])[0]}</td>
                    <td class="is-number">${row.superseded_by == null ? "–" : html`<a href=${hashOf(["t", topic, partition, "records"], { from: row.superseded_by })}>${formatCount(row.superseded_by)}</a>`}</td>
                  </tr>
                `)}
              </${Rows}>
              <${Pager} first=${first} shown=${answer.fates.length} total=${answer.total ?? first + answer.fates.length} onGo=${setFirst} what="records" />
            `}
      `}
    </${Requested}>
  `;
}

/** Numbers of records by fate, as bars. */
export function FateCounts({ counts }) {
  const sum = Object.values(counts).reduce((total, count) => total + count, 0);
  const rows = Object.entries(counts).filter(([, count]) => count > 0);
  return html`
    <ul class="fates">
      ${rows.map(([fate, count]) => html`
        <li key=${fate}>
          <span>${(FATES[fate] ?? [fate])[0]}<span class="explanation">${FATES[fate]?.[1]}</span></span>
          <${Bar} share=${count / sum} kind=${fate === "retained" ? "kept" : "dirty"} />
          <span>${formatCount(count)} <span class="dim">${formatRatio(count / sum)}</span></span>
        </li>
      `)}
    </ul>
  `;
}
