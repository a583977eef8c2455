// Search the records of a partition, and save them.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { getJson, path, useAnswer, withQuery } from "./api.js";
import { bytesOfField, Field, Headers, lineOf, visible } from "./bytes.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { hexLines, indented, KEY_FORMATS, keyQuery, parseKey, parsePosition } from "./keys.js";
import { Badge, Empty, quoted, Requested, Rows, Time } from "./parts.js";
import { hashOf, replaceHash } from "./routes.js";

const PAGE = 50;
/** Maximum bytes of a field in the list, and in an expanded record. */
const LINE_BYTES = 2_048;
const OPEN_BYTES = 1024 * 1024;
const HEADINGS = ["Offset", "Timestamp", "Key", "Value"];
const VIEWS = [["auto", "decoded"], ["text", "as text"], ["hex", "as bytes"]];

/** Search conditions, by their names in the address. */
const MORE = ["pattern", "header", "header_text"];
const CONDITIONS = ["key", "text", ...MORE];

/** An input for a key, with a choice of formats. */
export function KeyField({ label = "Key", text, format, onChange, isWide = false, required = false }) {
  const example = KEY_FORMATS.find(([name]) => name === format)?.[2];
  return html`
    <div class=${`field key-field ${isWide ? "is-wide" : ""}`} role="group" aria-label=${label}>
      <label for="key-text">${label}</label>
      <span class="joined">
        <select aria-label="Format of the key" value=${format} onChange=${(event) => onChange(text, event.target.value)}>
          ${KEY_FORMATS.map(([name, title]) => html`<option key=${name} value=${name} selected=${name === format}>${title}</option>`)}
        </select>
        <input id="key-text" value=${text} placeholder=${example} required=${required} autocomplete="off" spellcheck="false" onInput=${(event) => onChange(event.target.value, format)} />
      </span>
    </div>
  `;
}

/** Convert the address query to request parameters, or return `{complaint}`. */
export function requestOf(query) {
  const found = {};
  for (const [name, bound] of [["from", "from"], ["until", "until"]]) {
    if (query[name] == null) continue;
    const position = parsePosition(query[name]);
    if (position === null) {
      return { complaint: `“${query[name]}” is neither an offset nor a time. Enter 1200, 2024-01-31, 2024-01-31 12:00, or @ and Unix milliseconds.` };
    }
    if (position.ms === undefined) found[`${bound}_offset`] = position.offset;
    else found[`${bound}_timestamp`] = position.ms;
  }
  if (query.key != null) {
    const key = parseKey(query.as ?? "text", query.key);
    if (key === null) return { complaint: `“${query.key}” is not a key in the format ${query.as}.` };
    Object.assign(found, key);
  }
  for (const name of CONDITIONS.slice(1)) if (query[name] != null) found[name] = query[name];
  return found;
}

export function RecordBrowser({ topic, partition, query, start, end, about, isMeant }) {
  const here = ["t", topic, partition, "records"];
  const asked = requestOf(query);
  const isFiltered = CONDITIONS.some((name) => query[name] != null) || asked.until_timestamp !== undefined;
  const base = `${path("partitions", topic, partition)}/records`;
  const addressOf = (more) => withQuery(base, { ...asked, field_bytes: LINE_BYTES, ...more });
  const last = Math.min(end, asked.until_offset ?? end);
  const isValid = asked.complaint === undefined;
  const search = useSearch(isValid ? addressOf({ count: PAGE, ...(asked.from_offset ?? asked.from_timestamp) === undefined && { from_offset: start } }) : null, addressOf, last, isMeant);
  const { records, next, error } = search;
  const first = records[0]?.offset;
  const go = (parts) => replaceHash(hashOf(here, { ...query, ...parts }));
  const jump = (offset) => go({ from: Math.max(start, offset) });
  // There may be valid records after damage, so let the user skip it.
  const following = error === null ? next : (asked.from_offset ?? start) + PAGE;

  return html`
    <${SearchForm} key=${JSON.stringify(query)} query=${query} start=${start} isFiltered=${isFiltered} onGo=${(parts) => replaceHash(hashOf(here, parts))} />
    ${!isValid && html`<p class="complaint" role="alert">${asked.complaint}</p>`}
    ${isValid && html`
      <div class="result-line">
        <p role="status">${search.isLoading && records.length === 0 ? "Searching …" : foundInWords(search, isFiltered, last)}</p>
        ${search.isBusy && html`<button type="button" class="quiet" onClick=${search.stop}>Stop</button>`}
        <span class="result-moves">
          <button type="button" onClick=${() => jump(start)} disabled=${records.length > 0 && first <= start}>First</button>
          ${!isFiltered && html`<button type="button" onClick=${() => jump((first ?? end) - PAGE)} disabled=${first === undefined ? end <= start : first <= start}>Earlier</button>`}
          <button type="button" onClick=${() => jump(following)} disabled=${following === null || following >= last}>${isFiltered ? "Search further" : "Later"}</button>
          ${!isFiltered && html`<button type="button" onClick=${() => jump(end - PAGE)}>Last</button>`}
          <button type="button" onClick=${() => save(records, base, `${topic}-${partition}.jsonl`)} disabled=${records.length === 0}>Download</button>
        </span>
      </div>
      <${Requested} of=${search} what="Records">
        ${() => records.length > 0
          ? html`<${RecordRows} records=${records} topic=${topic} partition=${partition} />`
          : !search.isBusy && html`<${NoRecords} isEmpty=${end <= start} isFiltered=${isFiltered} topic=${topic} partition=${partition} about=${about} />`}
      </${Requested}>
    `}
  `;
}

function foundInWords({ records, next, scanned, isBusy }, isFiltered, last) {
  const found = records.length === 0 ? "No records" : plural(records.length, "record");
  const range = records.length === 0 ? "" : `, offsets ${formatCount(records[0].offset)} to ${formatCount(records.at(-1).offset)}`;
  if (!isFiltered) return `${found}${range}`;
  const reached = isBusy ? "searching" : next >= last ? "searched to the end" : "searched";
  return `${found} found${range}; ${reached}: ${plural(scanned.records, "record")}, ${formatBytes(scanned.bytes)}${next < last ? `, up to offset ${formatCount(next)}` : ""}`;
}

/** Hook: search until a page is full, the end is reached or the user stops it. */
function useSearch(target, addressOf, last, isMeant) {
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant });
  const [rest, setRest] = useState(null);
  const controller = useRef(null);
  const { answer } = request;
  useEffect(() => {
    setRest(null);
    if (answer === null || target === null) return undefined;
    const mine = new AbortController();
    controller.current = mine;
    const further = async () => {
      let { records, next_offset: next, scanned } = answer;
      while (records.length < PAGE && next < last) {
        setRest({ records, next, scanned, isBusy: true });
        const more = await getJson(addressOf({ from_offset: next, from_timestamp: null, count: PAGE - records.length }), { signal: mine.signal });
        if (more.next_offset <= next) break;
        records = [...records, ...more.records];
        next = more.next_offset;
        scanned = { records: scanned.records + more.scanned.records, bytes: scanned.bytes + more.scanned.bytes };
      }
      setRest({ records, next, scanned, isBusy: false });
    };
    further().catch((error) => {
      if (error.name !== "AbortError") setRest((before) => ({ ...before, isBusy: false, error }));
      else if (controller.current === mine) setRest((before) => before && { ...before, isBusy: false });
    });
    return () => {
      controller.current = null;
      mine.abort();
    };
  }, [answer]);
  const shown = rest ?? { records: answer?.records ?? [], next: answer?.next_offset ?? null, scanned: answer?.scanned, isBusy: false };
  return { ...request, error: request.error ?? rest?.error ?? null, ...shown, stop: () => controller.current?.abort() };
}

function SearchForm({ query, start, isFiltered, onGo }) {
  const [draft, setDraft] = useState({ ...query, as: query.as ?? "text" });
  const field = (name) => ({ value: draft[name] ?? "", autocomplete: "off", spellcheck: "false", onInput: (event) => setDraft({ ...draft, [name]: event.target.value }) });
  const submit = (event) => {
    event.preventDefault();
    const entries = Object.entries(draft).map(([name, text]) => [name, CONDITIONS.includes(name) ? text : text?.trim()]);
    const parts = Object.fromEntries(entries);
    onGo({ ...parts, as: parts.key && parts.as !== "text" ? parts.as : null });
  };
  return html`
    <form class="search-form" role="search" aria-label="Search of records" onSubmit=${submit}>
      <${KeyField} text=${draft.key ?? ""} format=${draft.as} onChange=${(key, as) => setDraft({ ...draft, key, as })} />
      <label class="field"><span>Text in key, value or headers</span><input ...${field("text")} /></label>
      <label class="field"><span>From (offset or UTC time)</span><input placeholder=${String(start)} ...${field("from")} /></label>
      <label class="field"><span>Until (exclusive)</span><input placeholder="2024-01-31 12:00" ...${field("until")} /></label>
      <span class="buttons">
        <button type="submit" class="primary">Search</button>
        ${isFiltered && html`<button type="button" onClick=${() => onGo({})}>Clear</button>`}
      </span>
      <details class="more-conditions" open=${MORE.some((name) => query[name] != null)}>
        <summary>More conditions</summary>
        <div class="search-form">
          <label class="field"><span>Regular expression (RE2)</span><input placeholder="(?i)ann.*" ...${field("pattern")} /></label>
          <label class="field"><span>Header</span><input placeholder="name" ...${field("header")} /></label>
          <label class="field"><span>Text in a header</span><input ...${field("header_text")} /></label>
        </div>
      </details>
    </form>
  `;
}

function NoRecords({ isEmpty, isFiltered, topic, partition, about }) {
  if (!isEmpty) return html`<${Empty}>${isFiltered ? "No record matches." : "No records at or after this position."}</${Empty}>`;
  return html`
    <${Empty} line=${appendLine(topic, partition, about)}>
      ${about.read_only
        ? "This partition is empty. In the original directory, a client or the command line appends records:"
        : "This partition is empty. A client, or the program that opened the broker, appends records:"}
    </${Empty}>
  `;
}

// The command line cannot write to a directory that a broker has open, so show Python code.
function appendLine(topic, partition, about) {
  if (!about.read_only) {
    return `broker.append(${JSON.stringify(topic)}, key=b"1", value=b"ann", partition=${partition})`;
  }
  return `echo '{"key": "1", "value": "ann"}' | logstore append ${quoted(topic)} --partition ${partition}`;
}

// -- records -------------------------------------------------------------------------------

export function RecordRows({ records, label = "Records", topic, partition }) {
  return html`
    <${Rows} folds label=${label} headings=${HEADINGS} numbers=${["Offset"]}>
      ${records.map((record) => html`<${RecordRow} key=${record.offset} record=${record} topic=${topic} partition=${partition} />`)}
    </${Rows}>
  `;
}

function isTombstone(record) {
  return record.value == null && record.value_base64 === undefined && record.control == null;
}

function RecordRow({ record, topic, partition }) {
  const [isOpen, setOpen] = useState(false);
  const headers = record.headers?.length ?? 0;
  return html`
    <tr class=${isOpen ? "is-open" : ""}>
      <td class="is-number">
        <button type="button" class="fold" aria-expanded=${isOpen} aria-label=${`Record ${record.offset}`} onClick=${() => setOpen(!isOpen)}>
          <span class="fold-mark" aria-hidden="true">${isOpen ? "▾" : "▸"}</span>${formatCount(record.offset)}
        </button>
      </td>
      <td><${Time} ms=${record.timestamp} /></td>
      <td class="is-line">${lineOf(record, "key") === null ? html`<${Badge}>no key</${Badge}>` : html`<code>${lineOf(record, "key")}</code>`}</td>
      <td class="is-line">
        ${record.control != null && html`<${Badge}>${typeof record.control === "string" ? record.control : "marker"}</${Badge}>`}
        ${isTombstone(record) && html`<${Badge}>tombstone</${Badge}>`}
        ${headers > 0 && html`<span class="dim">[${plural(headers, "header")}] </span>`}
        ${record.control == null && lineOf(record, "value") !== null && html`<code>${lineOf(record, "value")}</code>`}
      </td>
    </tr>
    ${isOpen && html`<tr class="opened"><td colspan="4"><${Opened} record=${record} topic=${topic} partition=${partition} /></td></tr>`}
  `;
}

/** An expanded record, with its full key, value and headers. */
function Opened({ record, topic, partition }) {
  const base = `${path("partitions", topic, partition)}/records`;
  const request = useAnswer(record.cut ? withQuery(base, { from_offset: record.offset, count: 1, field_bytes: OPEN_BYTES }) : null);
  const whole = request.answer?.records.find((each) => each.offset === record.offset) ?? record;
  const key = keyQuery(record);
  return html`
    <div class="record">
      <${Content} record=${whole} name="key" title="Key" none="no key" />
      ${record.control == null && html`<${Content} record=${whole} name="value" title="Value" none="none: this record is a tombstone" />`}
      <${Headers} headers=${record.headers} />
      <p class="record-facts">
        <span>Timestamp <${Time} ms=${record.timestamp} both />${record.timestamp_type === 1 ? " (LogAppendTime)" : ""}</span>
        ${key?.key && record.cut?.key === undefined && html`
          <a href=${hashOf(["t", topic, partition, "records"], key)}>Records of this key</a>
          <a href=${hashOf(["t", topic, partition, "key"], key)}>Locations of this key</a>
        `}
      </p>
    </div>
  `;
}

/** A key or value: decoded, as text, or as bytes. */
function Content({ record, name, title, none }) {
  const [view, setView] = useState("auto");
  const bytes = bytesOfField(record, name);
  if (bytes === null) return html`<div class="content"><span class="content-title">${title}</span> <span class="dim">${none}</span></div>`;
  const decoded = record.decoded?.[name];
  const size = record.cut?.[name];
  return html`
    <div class="content">
      <span class="content-title">${title} <span class="dim">${formatBytes(size ?? bytes.length)}</span></span>
      <span class="views" role="group" aria-label=${`${title} is shown`}>
        ${VIEWS.map(([key, words]) => html`<button type="button" key=${key} class="quiet" aria-pressed=${view === key} onClick=${() => setView(key)}>${words}</button>`)}
      </span>
      ${view === "hex"
        ? html`<pre class="bytes" tabindex="0">${hexLines(bytes.slice(0, LINE_BYTES * 4))}</pre>`
        : view === "auto" && (decoded != null || indented(record[name] ?? "") !== null)
          ? html`<pre class="bytes" tabindex="0">${visible(decoded != null ? decodedText(decoded) : indented(record[name]), true)}</pre>`
          : html`<${Field} record=${{ ...record, decoded: undefined }} name=${name} />`}
      ${record.decoded?.error && html`<p class="complaint">${record.decoded.error}</p>`}
      ${size !== undefined && size > bytes.length && html`<p class="dim">Only the first ${formatBytes(bytes.length)}. Download the record to see the rest.</p>`}
    </div>
  `;
}

function decodedText(decoded) {
  return typeof decoded === "string" ? decoded : JSON.stringify(decoded, null, 2);
}

/** Save records as JSON lines, after requesting truncated ones in full. */
async function save(records, base, name) {
  const lines = [];
  for (const record of records) {
    const whole = record.cut === undefined
      ? record
      : (await getJson(withQuery(base, { from_offset: record.offset, count: 1 }))).records[0];
    lines.push(`${JSON.stringify(whole)}\n`);
  }
  const address = URL.createObjectURL(new Blob(lines, { type: "application/jsonl" }));
  const link = Object.assign(document.createElement("a"), { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 1_000);
}
