// Deeds: each is a dialog that first shows what it would do, names what would be lost, and shows
// the line of the command line that does the same. Their results stay in a list on the page.

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

/** Whether this principal may do a deed on what is shown. */
export function may(about, deed) {
  return !about.read_only && about.may.includes(deed);
}

/** Why a page shows no deeds; nothing where it does. */
export function ReadOnlyNote({ about }) {
  if (!about.read_only) return null;
  return html`<div class="notice">
    <p>
      <strong>Read-only:</strong> ${about.read_only_because}. What a change would do is shown all the
      same.
    </p>
  </div>`;
}

/** The line or lines of the command line that do the same. */
export function Commands({ lines }) {
  const given = [lines ?? []].flat();
  return given.map((line) => html`<${Command} key=${line} line=${line} />`);
}

// -- results -------------------------------------------------------------------------------

let results = [];
let deedsDone = 0;
const watchers = new Set();

/** Keep a result for the pages to show: `text` says what was done, `links` lead on. */
export function report({ topic = null, text, command, links = [] }) {
  results = [{ id: (deedsDone += 1), topic, text, command, links }, ...results].slice(
    0,
    RESULTS_MAX,
  );
  for (const changed of watchers) changed(results);
}

/** What was done since the page was opened, newest first: to a topic, or to all. */
export function Done({ topic }) {
  const [shown, setShown] = useState(results);
  useEffect(() => {
    watchers.add(setShown);
    return () => watchers.delete(setShown);
  }, []);
  const mine = shown.filter((each) => topic === undefined || each.topic === topic);
  return html`<div class="done">
    <div role="log" aria-label=${topic === undefined ? "What was done" : `What was done to ${topic}`}>
      ${mine.slice(0, 1).map((each) => html`<${Result} key=${each.id} result=${each} />`)}
    </div>
    ${mine.length > 1 && html`<details>
      <summary>${plural(mine.length - 1, "earlier deed")}</summary>
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

// -- one deed ------------------------------------------------------------------------------

/**
 * A dialog that does one thing.
 *
 * `body` is what is sent, null while the form cannot be sent; `rehearse` draws what the dry run
 * answered, if there is one to be asked for; `tell` makes a sentence of what was done.
 */
export function DeedDialog({
  title, verb, path, method = "POST", body, rehearse, tell, links, topic, onClose, onDone, children,
}) {
  const rehearsal = useRehearsal(rehearse ? path : null, method, body);
  const { busy, error, loss, perform } = usePerformance({
    path,
    method,
    tell,
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
    <form class="deed" onSubmit=${submit}>
      <div class="deed-form" hidden=${loss !== null}>
        ${children}
        ${rehearse && html`<div class="rehearsal" aria-busy=${rehearsal.busy}>
          ${rehearsal.error && html`<${Failure} error=${rehearsal.error} />`}
          ${rehearsal.answer && rehearse(rehearsal.answer.done)}
          ${rehearsal.busy && html`<p class="dim">Looking at what it would do …</p>`}
        </div>`}
      </div>
      ${loss && html`<${Loss} loses=${loss.loses} />`}
      <${Commands} lines=${loss?.command ?? rehearsal.answer?.command} />
      ${error && html`<${Failure} error=${error} />`}
      <p class="buttons">
        <button type="submit" class=${loss ? "danger" : "primary"} disabled=${busy || body === null}>
          ${loss ? "Yes, lose them for good" : verb}
        </button>
        <button type="button" onClick=${onClose}>Cancel</button>
        ${busy && html`<span role="status">At work …</span>`}
      </p>
    </form>
  <//>`;
}

/**
 * Sends deeds: `perform(body)`, the outcome in `error` or in the results of the page.
 *
 * A deed that loses data is refused at first: then `loss` says what, and to perform the same body
 * again confirms it.
 */
export function usePerformance({ path, method = "POST", tell, topic = null, links, onDone }) {
  const [state, setState] = useState(IDLE);
  const perform = async (body) => {
    const confirm = state.loss === null ? {} : { confirm: state.loss.confirm };
    setState({ ...state, busy: true, error: null });
    try {
      const answer = await send(method, path, { ...body, ...confirm });
      setState(IDLE);
      const text = [tell(answer.done, body), ...answer.notes].join(" ");
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

/** What would be lost, in the words of the server; it takes the focus, so that it is read out. */
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
    <p>Nothing brings them back.</p>
  </div>`;
}

function useRehearsal(path, method, body) {
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

/** A button that opens a dialog; the dialog is a component that gets `onClose`. */
export function DialogButton({ children, dialog, class: className }) {
  const [open, setOpen] = useState(false);
  const button = useRef(null);
  // What is done may take the button away, as a retry does: the focus must not go with it.
  useLayoutEffect(() => () => keepFocus(button.current), []);
  return html`<button type="button" ref=${button} class=${className} aria-haspopup="dialog"
      onClick=${() => setOpen(true)}>${children}</button>
    ${open && dialog(() => setOpen(false))}`;
}

// -- deeds of a partition ------------------------------------------------------------------

/** The deeds of a partition; `detail` is the partition as the API shows it. */
export function PartitionDeeds({ topic, partition, detail, about, onDone }) {
  const state = detail ?? {};
  const base = pathOf("partitions", topic, partition);
  const name = `${topic}-${partition}`;
  const links = [[hashOf(["t", topic, partition]), `Show ${name}`]];
  const common = { topic, partition, name, base, links, state, onDone };
  if (about.read_only) return html`<${ReadOnlyNote} about=${about} />`;
  const deeds = [
    ["roll", "Roll", RollDialog],
    ["clean", "Clean", CleanDialog],
    ["retain", "Apply retention", RetainDialog],
    ["delete-records", "Delete records", DeleteRecordsDialog],
    ...(state.uncleanable ? [["retry", "Retry cleaning", RetryDialog]] : []),
  ].filter(([deed]) => may(about, deed));
  return html`<div class="deeds" role="group" aria-label=${`Deeds on ${name}`}>
    ${deeds.map(
      ([deed, label, Deed]) => html`<${DialogButton} key=${deed}
        dialog=${(onClose) => html`<${Deed} ...${common} onClose=${onClose} />`}>${label} …<//>`,
    )}
  </div>
  <${Done} topic=${topic} />`;
}

/** The deeds of a whole topic. */
export function TopicDeeds({ topic, about, onDone }) {
  const dialog = (onClose) => html`<${DeleteTopicDialog} topic=${topic} onClose=${onClose} onDone=${onDone} />`;
  return html`<${ReadOnlyNote} about=${about} />
    ${may(about, "delete-topic") &&
    html`<div class="deeds" role="group" aria-label=${`Deeds on ${topic}`}>
      <${DialogButton} dialog=${dialog}>Delete the topic …<//>
    </div>`}
    <${Done} topic=${topic} />`;
}

function DeleteTopicDialog({ topic, onClose, onDone }) {
  const [typed, setTyped] = useState("");
  return html`<${DeedDialog} title=${`Delete topic ${topic}`} verb="Delete" method="DELETE"
    path=${pathOf("topics", topic)} body=${typed === topic ? {} : null} topic=${topic} links=${[[hashOf(), "All partitions"]]}
    tell=${(done) => `Deleted topic ${topic}: ${plural(done.segments, "segment")}, ${formatBytes(done.size_bytes)}.`}
    onClose=${onClose} onDone=${(done) => {
      onDone?.(done);
      location.hash = hashOf();
    }}>
    <p>Deletes its settings and all data of its partitions.</p>
    <${TextField} label="Type the topic's name to go on" value=${typed} onInput=${setTyped} />
  <//>`;
}

function RollDialog({ name, base, ...common }) {
  return html`<${DeedDialog} title=${`Roll ${name}`} verb="Roll" path=${`${base}/roll`} body=${{}}
    rehearse=${() => null}
    tell=${(done) => `Rolled ${name}: its active segment now begins at offset ${done.base_offset}.`}
    ...${common}>
    <p>
      Closes the active segment, the one that appends go to, and begins a new one. Neither cleaning nor
      deletion by age touches the active segment: what it holds can be cleaned after this.
    </p>
  <//>`;
}

function CleanDialog({ name, base, ...common }) {
  const [force, setForce] = useState(true);
  const [roll, setRoll] = useState(false);
  return html`<${DeedDialog} title=${`Clean ${name}`} verb="Clean" path=${`${base}/clean`}
    body=${{ force, roll }} rehearse=${(done) => html`<${Cleaning} done=${done} />`}
    tell=${(done) => `${name}: ${cleaningInWords(done)}`} ...${common}>
    <p>Keeps the latest record of each key, and drops tombstones whose time is over.</p>
    <${Check} checked=${force} onChange=${setForce} label="Even if it is not due">
      Dirty ratio and compaction lags are passed over.
    <//>
    <${Check} checked=${roll} onChange=${setRoll} label="Roll the active segment first">
      What it holds is then cleaned too.
    <//>
  <//>`;
}

function RetainDialog({ name, base, ...common }) {
  return html`<${DeedDialog} title=${`Apply retention to ${name}`} verb="Apply retention"
    path=${`${base}/retain`} body=${{}} rehearse=${(done) => html`<${Retention} done=${done} />`}
    tell=${(done) => `${name}: ${retentionInWords(done)}`} ...${common}>
    <p>Removes whole segments, the oldest first, as the rules of age and size say.</p>
  <//>`;
}

/** The dialog that takes the mark off a partition that could not be cleaned. */
export function RetryDialog({ name, base, state, ...common }) {
  return html`<${DeedDialog} title=${`Retry cleaning ${name}`} verb="Retry" path=${`${base}/retry`}
    body=${{}} rehearse=${() => null}
    tell=${() => `${name} is no longer marked uncleanable: the cleaner tries it again.`}
    ...${common}>
    <p>
      The cleaner gave this partition up: ${state.uncleanable.reason}. The mark is
      taken off; if the cause is still there, it comes back.
    </p>
  <//>`;
}

function DeleteRecordsDialog({ name, base, state, ...common }) {
  const [kind, setKind] = useState("offset");
  const [offset, setOffset] = useState("");
  const [time, setTime] = useState("");
  const found = useRecordAt(base, kind, kind === "offset" ? offset : time);
  const body = deletionBody(kind, offset, found);
  return html`<${DeedDialog} title=${`Delete records of ${name}`} verb="Delete" body=${body}
    path=${`${base}/delete-records`}
    rehearse=${(done) => html`<${Deletion} done=${done} state=${state} />`}
    tell=${(done) => `Deleted the records of ${name} below offset ${done.partitions[0].low_watermark}.`}
    ...${common}>
    <p>
      Moves the log's start up to an offset (KIP-107): no reader sees what lies below it any more, and
      segments that lie wholly below it go at once.
    </p>
    <fieldset class="choices">
      <legend>Delete the records below</legend>
      ${[
        ["offset", "an offset"],
        ["time", "the first record of a time"],
        ["all", "the end: all there are"],
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
  return start === undefined ? "" : `The log holds offsets ${start} to ${end} (exclusive).`;
}

/** The first record at or above an offset or a time: null if none is, undefined if not known. */
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
        // The dry run beside it says what is wrong.
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

/** The record that a reader would get first. */
function RecordAt({ record }) {
  if (record === undefined) return null;
  if (record === null) return html`<p role="status">No record lies there or later.</p>`;
  return html`<p role="status">The first record that stays has offset ${formatCount(record.offset)}:</p>
    <${Facts} facts=${[
      ["Key", html`<${Field} record=${record} name="key" nullWord="no key" />`],
      ["Value", html`<${Field} record=${record} name="value" nullWord="tombstone" />`],
      ["Time", html`<${Time} ms=${record.timestamp} />`],
    ]} />`;
}

// -- what deeds would do, and did ----------------------------------------------------------

/** A cleaning, or its dry run, as a table of what goes. */
export function Cleaning({ done }) {
  if (done.cleaned.length === 0) {
    return html`<p>${cleaningInWords(done)}</p>`;
  }
  return html`<table class="grid-table">
    <caption>What the cleaning would do</caption>
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

/** The fates of several passes together. */
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

/** One sentence about a cleaning or its dry run. */
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
    `${formatCount(records)} records ${done.dry_run ? "would go" : "went"}.`
  );
}

/** The segments that retention removes, each with its reason. */
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
  if (done.removed.length === 0) return "Retention finds nothing to remove.";
  const what = `${formatCount(done.removed.length)} segments, ${formatBytes(sum(done.removed, "size_bytes"))}`;
  return done.dry_run ? `${what} would go.` : `${what} removed by retention.`;
}

function Deletion({ done, state }) {
  const to = done.partitions[0].low_watermark;
  const from = state.log_start_offset;
  if (from !== undefined && to <= from) {
    return html`<p>Nothing to delete: the log begins at offset ${from} already.</p>`;
  }
  return html`<p>Offsets ${from ?? "from the start"} to ${to - 1} would go; the log would begin at ${to}.</p>`;
}

// -- fields --------------------------------------------------------------------------------

/** A text field with its label, a hint and perhaps an error. */
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

/** A box to tick, with what it means. */
export function Check({ checked, onChange, label, children }) {
  const id = useIdentity("check");
  return html`<div class="check">
    <input id=${id} type="checkbox" checked=${checked} aria-describedby=${`${id}-hint`}
      onChange=${(event) => onChange(event.target.checked)} />
    <label for=${id}>${label}</label>
    <span class="hint" id=${`${id}-hint`}>${children}</span>
  </div>`;
}
