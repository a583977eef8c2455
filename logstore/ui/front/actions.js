// Operations. Each has a dialog that shows a dry run, the data that would be lost, and the
// equivalent command line. The page lists the results.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./vendor/htm-preact.js";
import { ApiError, deleteJson, getJson, path as pathOf, postJson, withQuery } from "./api.js";
import { Field } from "./bytes.js";
import { Dialog, keepFocus, useIdentity } from "./dialog.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { Command, Facts, Failure, Time } from "./parts.js";
import { render, renderAll } from "./reasons.js";
import { FateCounts } from "./records.js";
import { hashOf } from "./routes.js";

const RESULTS_MAX = 20;
const LOSSES_MAX = 20;
const TYPING_MS = 300;

// -- permission ----------------------------------------------------------------------------

/** Whether the principal may perform an operation. */
export function may(about, action) {
  return !about.read_only && about.may.includes(action);
}

/** Why the page is read-only. */
export function ReadOnlyNote({ about }) {
  if (!about.read_only) return null;
  return html`<div class="notice">
    <p>
      <strong>Read-only:</strong> ${about.read_only_because}. You can still preview changes.
    </p>
  </div>`;
}

/** Equivalent command lines. */
export function Commands({ lines }) {
  const given = [lines ?? []].flat();
  return given.map((line) => html`<${Command} key=${line} line=${line} />`);
}

// -- results -------------------------------------------------------------------------------

let results = [];
let resultCount = 0;
const watchers = new Set();

/** Add a result to the list; `links` are related pages. */
export function report({ topic = null, text, command, links = [] }) {
  results = [{ id: (resultCount += 1), topic, text, command, links }, ...results].slice(
    0,
    RESULTS_MAX,
  );
  for (const changed of watchers) changed(results);
}

/** Operations performed since the page was opened, newest first. */
export function Done({ topic }) {
  const [shown, setShown] = useState(results);
  useEffect(() => {
    watchers.add(setShown);
    return () => watchers.delete(setShown);
  }, []);
  const mine = shown.filter((each) => topic === undefined || each.topic === topic);
  return html`<div class="done">
    <div role="log" aria-label=${topic === undefined ? "Completed operations" : `Completed operations on ${topic}`}>
      ${mine.slice(0, 1).map((each) => html`<${Result} key=${each.id} result=${each} />`)}
    </div>
    ${mine.length > 1 && html`<details>
      <summary>${plural(mine.length - 1, "earlier operation")}</summary>
      ${mine.slice(1).map((each) => html`<${Result} key=${each.id} result=${each} />`)}
    </details>`}
  </div>`;
}

function Result({ result }) {
  return html`<article class="done-item">
    <p>
      ${result.text}${" "}
      ${result.links.map(([href, name]) => html`<a href=${href}>${name}</a>${" "}`)}
    </p>
    <${Commands} lines=${result.command} />
  </article>`;
}

// -- one operation -------------------------------------------------------------------------

/**
 * The dialog of an operation.
 *
 * `body` is the request body, or null while the form is invalid. `renderDryRun` renders the result of
 * a dry run, and `describe` returns a sentence about the result of the operation.
 */
export function ActionDialog({
  title, verb, path, method = "POST", body, renderDryRun, describe, links, topic, onClose, onDone, children,
}) {
  const dryRun = useDryRun(renderDryRun ? path : null, method, body);
  const { busy, error, loss, perform } = usePerformance({
    path,
    method,
    describe,
    topic,
    links,
    onDone: (done) => {
      onDone?.(done);
      onClose();
    },
  });
  const submit = (event) => {
    event.preventDefault();
    perform(body);
  };

  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form class="action" onSubmit=${submit}>
      <div class="action-form" hidden=${loss !== null}>
        ${children}
        ${renderDryRun && html`<div class="dry-run" aria-busy=${dryRun.busy}>
          ${dryRun.error && html`<${Failure} error=${dryRun.error} />`}
          ${dryRun.answer && renderDryRun(dryRun.answer.done)}
          ${dryRun.busy && html`<p class="dim">Dry run in progress …</p>`}
        </div>`}
      </div>
      ${loss && html`<${Loss} loses=${loss.loses} />`}
      <${Commands} lines=${loss?.command ?? dryRun.answer?.command} />
      ${error && html`<${Failure} error=${error} />`}
      <p class="buttons">
        <button type="submit" class=${loss ? "danger" : "primary"} disabled=${busy || body === null}>
          ${loss ? "Delete permanently" : verb}
        </button>
        <button type="button" onClick=${onClose}>Cancel</button>
        ${busy && html`<span role="status">In progress …</span>`}
      </p>
    </form>
  <//>`;
}

/**
 * Performs operations with `perform(body)`. Failures are in `error`; the page lists the results.
 *
 * The server first rejects an operation that would lose data. `loss` then describes the data, and
 * calling `perform` again with the same body confirms.
 */
export function usePerformance({ path, method = "POST", describe, topic = null, links, onDone }) {
  const [state, setState] = useState(IDLE);
  const perform = async (body) => {
    const confirm = state.loss === null ? {} : { confirm: state.loss.confirm };
    setState({ ...state, busy: true, error: null });
    try {
      const answer = await send(method, path, { ...body, ...confirm });
      setState(IDLE);
      const text = [describe(answer.done, body), ...answer.notes].join(" ");
      report({ topic, text, command: answer.command, links });
      onDone?.(answer.done);
    } catch (error) {
      const isLoss = error instanceof ApiError && error.status === 409 && error.body?.confirm;
      setState(isLoss ? { ...IDLE, loss: error.body } : { ...IDLE, error });
    }
  };
  return { ...state, perform, cancel: () => setState(IDLE) };
}

const IDLE = { busy: false, error: null, loss: null };

/** The data that would be lost. Takes the focus, so that screen readers announce it. */
export function Loss({ loses }) {
  const element = useRef(null);
  useEffect(() => element.current.focus(), []);
  const further = loses.partitions.length - LOSSES_MAX;
  return html`<div class="loss" ref=${element} tabindex="-1" role="alert">
    <p><strong>This loses data.</strong> ${loses.text}</p>
    <${Facts} facts=${[
      ["Records", formatCount(loses.records), loses.is_counted ? null : "at most"],
      ["Bytes", formatBytes(loses.bytes)],
      loses.from_ms !== null && ["From", html`<${Time} ms=${loses.from_ms} />`],
      loses.to_ms !== null && ["To", html`<${Time} ms=${loses.to_ms} />`],
    ]} />
    ${loses.partitions.length > 1 && html`<ul>
      ${loses.partitions.slice(0, LOSSES_MAX).map(
        (each) => html`<li key=${`${each.topic}-${each.partition}`}>
          ${each.topic}-${each.partition}: offsets ${each.first_offset} to ${each.last_offset},${" "}
          ${plural(each.records, "record")}, ${formatBytes(each.size_bytes)}
        </li>`,
      )}
      ${further > 0 && html`<li>and ${plural(further, "further partition")}</li>`}
    </ul>`}
    <p>This cannot be undone.</p>
  </div>`;
}

function useDryRun(path, method, body) {
  const [state, setState] = useState({ busy: false, answer: null, error: null });
  const text = JSON.stringify(body);
  useEffect(() => {
    if (path === null || body === null) {
      setState({ busy: false, answer: null, error: null });
      return undefined;
    }
    let wanted = true;
    setState((before) => ({ ...before, busy: true }));
    const timer = setTimeout(async () => {
      try {
        const answer = await send(method, path, { ...body, dry_run: true });
        if (wanted) setState({ busy: false, answer, error: null });
      } catch (error) {
        if (wanted) setState({ busy: false, answer: null, error });
      }
    }, TYPING_MS);
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [path, method, text]);
  return state;
}

function send(method, path, body) {
  return method === "DELETE" ? deleteJson(path, body) : postJson(path, body);
}

/** A button that opens a dialog, a component with the property `onClose`. */
export function DialogButton({ children, dialog, class: className }) {
  const [open, setOpen] = useState(false);
  const button = useRef(null);
  // Keep the focus if the operation removes its button, as a retry does.
  useLayoutEffect(() => () => keepFocus(button.current), []);
  return html`<button type="button" ref=${button} class=${className} aria-haspopup="dialog"
      onClick=${() => setOpen(true)}>${children}</button>
    ${open && dialog(() => setOpen(false))}`;
}

// -- operations on a partition -------------------------------------------------------------

/** Buttons for the operations on a partition; `detail` is the partition as returned by the API. */
export function PartitionActions({ topic, partition, detail, about, onDone }) {
  const state = detail ?? {};
  const base = pathOf("partitions", topic, partition);
  const name = `${topic}-${partition}`;
  const links = [[hashOf(["t", topic, partition]), `Show ${name}`]];
  const common = { topic, partition, name, base, links, state, onDone };
  if (about.read_only) return null;
  const actions = [
    ["roll", "Roll", RollDialog],
    ["clean", "Clean", CleanDialog],
    ["retain", "Apply retention", RetainDialog],
    ["delete-records", "Delete records", DeleteRecordsDialog],
    ...(state.uncleanable ? [["retry", "Retry cleaning", RetryDialog]] : []),
  ].filter(([action]) => may(about, action));
  return html`<div class="actions" role="group" aria-label=${`Operations on ${name}`}>
    ${actions.map(
      ([action, label, Form]) => html`<${DialogButton} key=${action}
        dialog=${(onClose) => html`<${Form} ...${common} onClose=${onClose} />`}>${label} …<//>`,
    )}
  </div>
  <${Done} topic=${topic} />`;
}

/** Buttons for the operations on a topic. */
export function TopicActions({ topic, about, onDone }) {
  const dialog = (onClose) => html`<${DeleteTopicDialog} topic=${topic} onClose=${onClose} onDone=${onDone} />`;
  return html`<${ReadOnlyNote} about=${about} />
    ${may(about, "delete-topic") &&
    html`<div class="actions" role="group" aria-label=${`Operations on ${topic}`}>
      <${DialogButton} dialog=${dialog}>Delete the topic …<//>
    </div>`}
    <${Done} topic=${topic} />`;
}

function DeleteTopicDialog({ topic, onClose, onDone }) {
  const [typed, setTyped] = useState("");
  return html`<${ActionDialog} title=${`Delete topic ${topic}`} verb="Delete" method="DELETE"
    path=${pathOf("topics", topic)} body=${typed === topic ? {} : null} topic=${topic} links=${[[hashOf(), "All partitions"]]}
    describe=${(done) => `Deleted topic ${topic}: ${plural(done.segments, "segment")}, ${formatBytes(done.size_bytes)}.`}
    onClose=${onClose} onDone=${(done) => {
      onDone?.(done);
      location.hash = hashOf();
    }}>
    <p>Deletes its settings and all data of its partitions.</p>
    <${TextField} label="Type the topic's name to confirm" value=${typed} onInput=${setTyped} />
  <//>`;
}

function RollDialog({ name, base, ...common }) {
  return html`<${ActionDialog} title=${`Roll ${name}`} verb="Roll" path=${`${base}/roll`} body=${{}}
    renderDryRun=${() => null}
    describe=${(done) => `Rolled ${name}: its active segment now starts at offset ${done.base_offset}.`}
    ...${common}>
    <p>
      Closes the active segment, which appends are written to, and starts a new one. The cleaner never
      touches the active segment: its records become cleanable by rolling it.
    </p>
  <//>`;
}

function CleanDialog({ name, base, ...common }) {
  const [force, setForce] = useState(true);
  const [roll, setRoll] = useState(false);
  return html`<${ActionDialog} title=${`Clean ${name}`} verb="Clean" path=${`${base}/clean`}
    body=${{ force, roll }} renderDryRun=${(done) => html`<${Cleaning} done=${done} />`}
    describe=${(done) => `${name}: ${cleaningInWords(done)}`} ...${common}>
    <p>Keeps the latest record of each key, and removes expired tombstones.</p>
    <${Check} checked=${force} onChange=${setForce} label="Force: clean even if not due">
      Ignores the dirty ratio and compaction lags.
    <//>
    <${Check} checked=${roll} onChange=${setRoll} label="Roll the active segment first">
      Its records are then cleaned too.
    <//>
  <//>`;
}

function RetainDialog({ name, base, ...common }) {
  return html`<${ActionDialog} title=${`Apply retention to ${name}`} verb="Apply retention"
    path=${`${base}/retain`} body=${{}} renderDryRun=${(done) => html`<${Retention} done=${done} />`}
    describe=${(done) => `${name}: ${retentionInWords(done)}`} ...${common}>
    <p>Deletes whole segments, oldest first, that exceed the age or size limit.</p>
  <//>`;
}

/** The dialog to clear the uncleanable flag of a partition. */
export function RetryDialog({ name, base, state, ...common }) {
  return html`<${ActionDialog} title=${`Retry cleaning ${name}`} verb="Retry" path=${`${base}/retry`}
    body=${{}} renderDryRun=${() => null}
    describe=${() => `${name} is no longer uncleanable: the cleaner retries it.`}
    ...${common}>
    <p>
      The cleaner skips this partition: ${state.uncleanable.reason}. After a retry it becomes
      uncleanable again if the cause persists.
    </p>
  <//>`;
}

function DeleteRecordsDialog({ name, base, state, ...common }) {
  const [kind, setKind] = useState("offset");
  const [offset, setOffset] = useState("");
  const [time, setTime] = useState("");
  const found = useRecordAt(base, kind, kind === "offset" ? offset : time);
  const body = deletionBody(kind, offset, found);
  return html`<${ActionDialog} title=${`Delete records of ${name}`} verb="Delete" body=${body}
    path=${`${base}/delete-records`}
    renderDryRun=${(done) => html`<${Deletion} done=${done} state=${state} />`}
    describe=${(done) => `Deleted the records of ${name} below offset ${done.partitions[0].low_watermark}.`}
    ...${common}>
    <p>
      Advances the log start offset (KIP-107): records below it are invisible to readers, and segments
      entirely below it are deleted at once.
    </p>
    <fieldset class="choices">
      <legend>Delete the records below</legend>
      ${[
        ["offset", "an offset"],
        ["time", "the first record at or after a time"],
        ["all", "the end (all records)"],
      ].map(
        ([value, label]) => html`<label key=${value}><input type="radio" name="delete-before"
          checked=${kind === value} onChange=${() => setKind(value)} /> ${label}</label>`,
      )}
    </fieldset>
    ${kind === "offset" && html`<${TextField} label="Offset" value=${offset} onInput=${setOffset}
      inputmode="numeric" hint=${offsetsInWords(state)} />`}
    ${kind === "time" && html`<${TextField} label="Time (UTC)" value=${time} onInput=${setTime}
      type="datetime-local" step="1" />`}
    ${kind !== "all" && html`<${RecordAt} record=${found} />`}
  <//>`;
}

function deletionBody(kind, offset, found) {
  if (kind === "all") return { before_offset: -1 };
  if (kind === "time") return found ? { before_offset: found.offset } : null;
  return /^\d+$/.test(offset.trim()) ? { before_offset: Number(offset.trim()) } : null;
}

function offsetsInWords({ log_start_offset: start, log_end_offset: end }) {
  return start === undefined ? "" : `The log has offsets ${start} to ${end} (exclusive).`;
}

/** The first record at or after an offset or time: null if none, undefined if not known yet. */
function useRecordAt(base, kind, text) {
  const [record, setRecord] = useState(undefined);
  const place = placeOf(kind, text.trim());
  const target = place === null ? null : withQuery(`${base}/records`, { ...place, count: 1 });
  useEffect(() => {
    setRecord(undefined);
    if (target === null) return undefined;
    let isWanted = true;
    const timer = setTimeout(async () => {
      try {
        const { records } = await getJson(target);
        if (isWanted) setRecord(records[0] ?? null);
      } catch {
        // The dry run reports the error.
        if (isWanted) setRecord(undefined);
      }
    }, TYPING_MS);
    return () => {
      isWanted = false;
      clearTimeout(timer);
    };
  }, [target]);
  return record;
}

function placeOf(kind, text) {
  if (kind === "offset") return /^\d+$/.test(text) ? { from_offset: text } : null;
  const ms = kind === "time" ? Date.parse(`${text}Z`) : NaN;
  return Number.isNaN(ms) ? null : { from_timestamp: ms };
}

/** The first record that remains after a deletion. */
function RecordAt({ record }) {
  if (record === undefined) return null;
  if (record === null) return html`<p role="status">No records at or after this position.</p>`;
  return html`<p role="status">The first remaining record has offset ${formatCount(record.offset)}:</p>
    <${Facts} facts=${[
      ["Key", html`<${Field} record=${record} name="key" nullWord="no key" />`],
      ["Value", html`<${Field} record=${record} name="value" nullWord="tombstone" />`],
      ["Time", html`<${Time} ms=${record.timestamp} />`],
    ]} />`;
}

// -- results of operations and dry runs ----------------------------------------------------

/** The result of a cleaning pass or dry run, as a table. */
export function Cleaning({ done }) {
  if (done.cleaned.length === 0) {
    return html`<p>${cleaningInWords(done)}</p>`;
  }
  return html`<table class="grid-table">
    <caption>Result of the cleaning pass</caption>
    <thead><tr><th scope="col">What</th><th scope="col" class="number">Before</th>
      <th scope="col" class="number">After</th></tr></thead>
    <tbody>
      ${[
        ["Segments", "segments_before", "segments_after", formatCount],
        ["Bytes", "bytes_read", "bytes_written", formatBytes],
        ["Records", "messages_read", "messages_written", formatCount],
      ].map(
        ([label, before, after, format]) => html`<tr key=${label}><th scope="row">${label}</th>
          <td class="number">${format(sum(done.cleaned, before))}</td>
          <td class="number">${format(sum(done.cleaned, after))}</td></tr>`,
      )}
    </tbody>
  </table>
  <${FateCounts} counts=${summedFates(done.cleaned)} />`;
}

/** Total fates of several passes. */
function summedFates(passes) {
  const total = {};
  for (const { fates } of passes) {
    for (const [fate, count] of Object.entries(fates)) total[fate] = (total[fate] ?? 0) + count;
  }
  return total;
}

function sum(items, name) {
  return items.reduce((total, item) => total + item[name], 0);
}

/** One sentence about a cleaning pass or dry run. */
export function cleaningInWords(done) {
  const would = done.dry_run ? "would be " : "";
  if (done.cleaned.length === 0) {
    const [obstacle] = done.not_cleaned;
    return `Nothing ${would || "was "}cleaned${obstacle ? `: ${render(obstacle)}` : ""}.`;
  }
  const before = sum(done.cleaned, "bytes_read");
  const after = sum(done.cleaned, "bytes_written");
  const records = sum(done.cleaned, "messages_read") - sum(done.cleaned, "messages_written");
  return (
    `${would}cleaned from ${formatBytes(before)} to ${formatBytes(after)}; ` +
    `${formatCount(records)} records ${would}removed.`
  );
}

/** Segments that retention deletes, and why. */
export function Retention({ done }) {
  if (done.removed.length === 0) return html`<p>${retentionInWords(done)}</p>`;
  return html`<table class="grid-table">
    <caption>${retentionInWords(done)}</caption>
    <thead><tr><th scope="col">Segment</th><th scope="col" class="number">Bytes</th>
      <th scope="col">Why</th></tr></thead>
    <tbody>
      ${done.removed.map(
        (each) => html`<tr key=${each.base_offset}><td>${each.base_offset}</td>
          <td class="number">${formatBytes(each.size_bytes)}</td><td>${renderAll(each.reasons)}</td></tr>`,
      )}
    </tbody>
  </table>`;
}

function retentionInWords(done) {
  if (done.removed.length === 0) return "Retention would delete nothing.";
  const what = `${formatCount(done.removed.length)} segments, ${formatBytes(sum(done.removed, "size_bytes"))}`;
  return done.dry_run ? `${what} would be deleted.` : `${what} deleted by retention.`;
}

function Deletion({ done, state }) {
  const to = done.partitions[0].low_watermark;
  const from = state.log_start_offset;
  if (from !== undefined && to <= from) {
    return html`<p>Nothing to delete: the log already starts at offset ${from}.</p>`;
  }
  return html`<p>Offsets ${from ?? "from the start"} to ${to - 1} would be deleted; the log would start at ${to}.</p>`;
}

// -- fields --------------------------------------------------------------------------------

/** A text field with a label, a hint and an optional error. */
export function TextField({ label, value, onInput, hint, error, ...attributes }) {
  const id = useIdentity("field");
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input id=${id} type="text" value=${value} onInput=${(event) => onInput(event.target.value)}
      aria-describedby=${`${id}-hint ${id}-error`} aria-invalid=${error ? "true" : null}
      autocomplete="off" spellcheck=${false} ...${attributes} />
    <p class="hint" id=${`${id}-hint`}>${hint}</p>
    <p class="error" id=${`${id}-error`}>${error}</p>
  </div>`;
}

/** A checkbox with a hint. */
export function Check({ checked, onChange, label, children }) {
  const id = useIdentity("check");
  return html`<div class="check">
    <input id=${id} type="checkbox" checked=${checked} aria-describedby=${`${id}-hint`}
      onChange=${(event) => onChange(event.target.checked)} />
    <label for=${id}>${label}</label>
    <span class="hint" id=${`${id}-hint`}>${children}</span>
  </div>`;
}
