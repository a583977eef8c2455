// Preview of a config change: for each partition, whether it is cleaned now and after the change,
// and when cleaning and retention would remove how much.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { path, postJson, subscribe, useAnswer, withQuery } from "./api.js";
import { Commands } from "./actions.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { Time } from "./parts.js";
import { render, renderAll } from "./reasons.js";
import { FateCounts } from "./records.js";
import { SegmentMap } from "./segment-map.js";

const TYPING_MS = 300;
const BUCKETS = 120;
const OPEN_MAX = 3;

/**
 * Hook: request the effect of a draft when typing pauses. Returns `{answer, error, busy, deepen}`.
 *
 * `draft` is `{topic, set, unset}`, with `topic` null for broker settings, or null to request
 * nothing. The old answer remains until the next one arrives. `deepen()` repeats the request
 * without a limit on the records read.
 */
export function usePreview(draft) {
  const [state, setState] = useState(NOTHING);
  const [deepened, setDeepened] = useState(null);
  const text = draft === null ? null : JSON.stringify(draft);
  const deep = text !== null && deepened === text;
  const body = deep ? JSON.stringify({ ...draft, deep }) : text;
  const round = useChanges();
  useEffect(() => {
    if (body === null) {
      setState(NOTHING);
      return undefined;
    }
    let isWanted = true;
    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const { topic, ...change } = JSON.parse(body);
        const answer = await postJson("preview", topic === null ? change : { topic, ...change });
        if (isWanted) setState({ answer, error: null, busy: false });
      } catch (error) {
        if (isWanted) setState({ answer: null, error, busy: false });
      }
    }, TYPING_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [body, round]);
  return { ...state, deepen: () => setDeepened(text) };
}

/** Hook: a number that changes when a preview may be outdated. */
function useChanges() {
  const [round, setRound] = useState(0);
  useEffect(() => {
    const changed = () => setRound((before) => before + 1);
    const ends = ["clock", "cleaned", "reconnected"].map((name) => subscribe(name, changed));
    return () => ends.forEach((end) => end());
  }, []);
  return round;
}

const NOTHING = { answer: null, error: null, busy: false };

/** The preview panel; `judgement` is the result of `usePreview`. */
export function Preview({ judgement }) {
  const { answer, busy, deepen } = judgement;
  return html`<section class="preview" aria-label="Preview" aria-busy=${busy}>
    <h2>Preview</h2>
    <p role="status">${headline(judgement)}</p>
    ${answer !== null && html`<${Effect} answer=${answer} onDeepen=${deepen} />`}
  </section>`;
}

function Effect({ answer, onDeepen }) {
  const { partitions, notes, left_out: leftOut, loses, commands } = answer;
  return html`
    ${loses !== null && html`<p class="notice is-warn"><span><strong>The change would lose data.</strong> ${loses.text}</span></p>`}
    ${notes.map((note) => html`<p key=${note}>${note}</p>`)}
    ${partitions.map(
      (item) => html`<${Folded} key=${`${item.topic}-${item.partition}`} item=${item}
        onDeepen=${onDeepen} isOpen=${partitions.length <= OPEN_MAX} />`,
    )}
    ${leftOut > 0 && html`<p>${plural(leftOut, "further partition")} not examined.</p>`}
    <${Commands} lines=${[commands.preview, commands.set].flat().filter(Boolean)} />
  `;
}

function headline({ answer, error, busy }) {
  if (error !== null) return "The change is invalid. See the error next to the field.";
  if (answer === null) return busy ? "Loading …" : "Change a field to preview the effect.";
  if (answer.changed.length === 0) return "No effect: all values are already set.";
  const { partitions } = answer;
  const due = partitions.filter((item) => item.after.will_clean).length;
  const wasDue = partitions.filter((item) => item.before.will_clean).length;
  const cleaning = `${formatCount(due)} of ${plural(partitions.length, "partition")} would be due for cleaning (now ${formatCount(wasDue)})`;
  const segments = sum(partitions, (item) => item.after.retention.segments);
  const bytes = sum(partitions, (item) => item.after.retention.size_bytes);
  const retention = segments > 0
    ? `retention would delete ${plural(segments, "segment")}, ${formatBytes(bytes)}`
    : "retention would delete nothing now";
  return `Not saved yet. After the change, ${cleaning}; ${retention}.`;
}

function changeInWords({ before, after }) {
  if (before.will_clean === after.will_clean) {
    return after.will_clean ? "due for cleaning, as before" : "not due for cleaning, as before";
  }
  return after.will_clean ? "becomes due for cleaning" : "is no longer due for cleaning";
}

// The content is rendered only when expanded, since each partition requests its segment map.
function Folded({ item, isOpen, onDeepen }) {
  const [open, setOpen] = useState(isOpen);
  return html`<details open=${open} onToggle=${(event) => setOpen(event.target.open)}>
    <summary>${item.topic}-${item.partition}: ${changeInWords(item)}</summary>
    ${open && html`<${PartitionPreview} item=${item} onDeepen=${onDeepen} />`}
  </details>`;
}

function PartitionPreview({ item, onDeepen }) {
  const { before, after } = item;
  const rows = [
    ["Decision", (outlook) => render(outlook.reason)],
    ["Cleaned", (outlook) => (outlook.will_clean ? "now" : outlook.opens_at_ms), "not by waiting"],
    ["Tombstones", (outlook) => outlook.tombstones && renderAll(outlook.tombstones.reasons), "not counted"],
    ["Tombstones remain until", (outlook) => outlook.horizon_ms],
    ["Retention now", (outlook) => retentionInWords(outlook.retention)],
    ["Next deletion due to age", (outlook) => outlook.retention.next_expiry_ms, "none by waiting"],
    ["Log start", (outlook) => `offset ${formatCount(outlook.retention.log_start_offset)}`],
  ];
  return html`
    <${TodaysMap} topic=${item.topic} partition=${item.partition} />
    <div class="scrolls" tabindex="0" role="region" aria-label=${`${item.topic}-${item.partition}, today and after the change`}>
      <table class="grid-table">
        <thead>
          <tr><td></td><th scope="col">Today</th><th scope="col">After the change</th></tr>
        </thead>
        <tbody>
          ${rows.map(
            ([name, of, none]) => html`<tr key=${name}><th scope="row">${name}</th>
              <td><${Told} value=${of(before)} none=${none} /></td>
              <td>${of(before) === of(after)
                ? html`<span class="dim">the same</span>`
                : html`<strong><${Told} value=${of(after)} none=${none} /></strong>`}</td></tr>`,
          )}
        </tbody>
      </table>
    </div>
    ${item.unread && html`<p>Not read: ${item.unread}.</p>
      <p><button type="button" onClick=${onDeepen}>Read all records</button></p>`}
    <${Pass} outlook=${after} />
  `;
}

function TodaysMap({ topic, partition }) {
  const target = withQuery(path("partitions", topic, partition, "segment-map"), { buckets: BUCKETS });
  const { answer } = useAnswer(target, { on: ["cleaned"] });
  if (answer === null) return null;
  return html`<${SegmentMap} buckets=${answer.buckets} label=${`Segments of ${topic}-${partition} today`} />`;
}

/** A time or a sentence; `none` is the default. */
function Told({ value, none = "–" }) {
  if (value === null || value === undefined) return none;
  return typeof value === "number" ? html`<${Time} ms=${value} />` : value;
}

function retentionInWords({ segments, size_bytes: bytes, reasons }) {
  if (segments === 0) return "removes nothing";
  return `removes ${plural(segments, "segment")}, ${formatBytes(bytes)}, by ${reasons.join(" and ")}`;
}

/** The cleaning pass that is due after the change, or else the next one. */
function Pass({ outlook }) {
  const pass = outlook.first_pass ?? outlook.later_pass;
  if (pass === null) return null;
  const before = pass.bytes_read;
  const after = pass.bytes_written;
  return html`
    <h3>${outlook.first_pass === null ? "The next cleaning pass" : "The cleaning pass that would be due"}</h3>
    <p>
      ${formatBytes(before)} would become ${formatBytes(after)}: ${formatBytes(before - after)} freed;${" "}
      ${plural(pass.segments_before, "segment")} would become ${formatCount(pass.segments_after)}.
    </p>
    <p>
      <meter min="0" max=${Math.max(before, 1)} value=${after}
        aria-label=${`Bytes kept: ${formatBytes(after)} of ${formatBytes(before)}`}></meter>
    </p>
    <${FateCounts} counts=${pass.fates} />
  `;
}

function sum(items, of) {
  return items.reduce((total, item) => total + of(item), 0);
}
