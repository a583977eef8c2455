// Batches, tombstones and record fates.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { Field } from "./bytes.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { Badge, Bar, Empty, Facts, Requested, Rows, Time } from "./parts.js";
import { render } from "./reasons.js";
import { hashOf } from "./routes.js";
import { RecordRows } from "./search.js";

const PAGE = 50;
const BATCH = ["First offset", "Last offset", "Records", "Size", "Latest timestamp", "Attributes", "Open"];
const HORIZONS = ["Segment", "Tombstones", "Without a horizon", "Past horizon", "First horizon", "Last horizon"];

// -- segments ------------------------------------------------------------------------------

/** A page of a list, with links to other pages. */
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

/** A segment with its batches, which expand to their records. */
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
          segment.holes != null && ["Offsets without a record", formatCount(segment.holes)],
          segment.tombstones != null && ["Tombstones", formatCount(segment.tombstones)],
          ["Latest timestamp", html`<${Time} ms=${segment.max_timestamp} both />`],
          segment.delete_horizon_ms != null && ["Delete horizon", html`<${Time} ms=${segment.delete_horizon_ms} both />`, "the first later pass removes tombstones"],
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
            ${(answer) => html`<${RecordRows} records=${answer.records} topic=${topic} partition=${partition} label=${`Records of the batch at ${batch.baseOffset}`} />`}
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
    <${Requested} of=${request} what="Tombstones">
      ${(answer) => html`<${TombstoneFacts} answer=${answer} nowMs=${answer.now_ms ?? nowMs} />`}
    </${Requested}>
  `;
}

function TombstoneFacts({ answer, nowMs }) {
  const found = answer.tombstones;
  if (!answer.is_compacted) {
    return html`<${Empty}>cleanup.policy does not compact, so a record without a value has no effect: it is removed with its segment, like any record.</${Empty}>`;
  }
  if (found.records === 0) return html`<${Empty}>No tombstone in this partition is the latest record of its key. Superseded tombstones are removed like any superseded record.</${Empty}>`;
  const stamped = found.records - found.unstamped - found.expired;
  const showTime = (ms) => html`<${Time} ms=${ms} both />`;
  const horizon = (ms) => (ms == null ? "–" : html`<${Time} ms=${ms} />, ${away(ms)}`);
  const away = (ms) => nowMs != null && (ms <= nowMs ? "passed" : `in ${formatDuration(ms - nowMs)}`);
  return html`
    <${Facts}
      facts=${[
        ["Tombstones", formatCount(found.records)],
        ["Without a horizon", formatCount(found.unstamped), "the first cleaning pass sets it"],
        ["Before their horizon", formatCount(stamped), "retained by every cleaning pass"],
        ["Past their horizon", formatCount(found.expired), "removed by the next pass that reaches them"],
        found.unreached > 0 && ["Not reached", formatCount(found.unreached), "beyond the end of the pass that is due"],
        found.first_horizon_ms != null && ["First horizon", showTime(found.first_horizon_ms), away(found.first_horizon_ms)],
        found.last_horizon_ms != null && ["Last horizon", showTime(found.last_horizon_ms), away(found.last_horizon_ms)],
        answer.delete_retention_ms != null && ["delete.retention.ms", formatDuration(answer.delete_retention_ms)],
      ]}
    />
    <ul class="plain-list spaced">${found.reasons.map((reason) => html`<li>${render(reason)}</li>`)}</ul>
    <details class="more">
      <summary>When a tombstone is removed</summary>
      <p>
        A tombstone is a record without a value: it deletes its key. Its first cleaning pass keeps it and sets
        the delete horizon of its batch to the time of the cleaning pass + delete.retention.ms. The first
        cleaning after the horizon removes it. Superseded tombstones are not counted: they are removed
        like any superseded record.
      </p>
    </details>
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

/** Short and long texts for record fates. */
export const FATES = {
  retained: ["kept", "latest record of its key, or not cleanable"],
  superseded: ["superseded", "a later record of its key survives"],
  tombstone_expired: ["tombstone, expired", "past its delete horizon"],
  aborted: ["aborted", "its transaction was aborted"],
  control_expired: ["marker, expired", "the records of its transaction are removed"],
  null_key: ["no key", "compaction removes records without a key"],
  below_log_start: ["below the log start", "not visible to consumers"],
  active: ["in the active segment", "not cleaned until it is rolled"],
  not_yet_cleanable: ["not cleanable yet", "too recent, or after an open transaction"],
};

export function Fates({ topic, partition, isMeant, isCostly }) {
  const [first, setFirst] = useState(0);
  const [roll, setRoll] = useState(false);
  const target = withQuery(`${path("partitions", topic, partition)}/fates`, { first, count: PAGE, roll: roll ? 1 : null });
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant, isCostly });
  return html`
    <div class="result-line">
      <p>The fate of each record in a cleaning pass that runs now${roll && ", after rolling the active segment"}.</p>
      <label class="check-line"><input type="checkbox" checked=${roll} onChange=${(event) => setRoll(event.target.checked)} /> Assume that the active segment is rolled first</label>
    </div>
    <${Requested} of=${request} what="Fates">
      ${(answer) => html`
        ${answer.counts != null && html`<${FateCounts} counts=${answer.counts} />`}
        ${answer.fates.length === 0
          ? html`<${Empty}>This partition has no records.</${Empty}>`
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

/** Number of records by fate, as bars. */
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
