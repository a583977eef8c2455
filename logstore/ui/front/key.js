// Where a key is in the files of a partition, and when it can be deleted.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { formatBytes, formatCount, formatDuration, plural } from "./format.js";
import { parseKey } from "./keys.js";
import { Badge, Command, directoryOption, quoted, Requested, Rows, Time } from "./parts.js";
import { renderAll } from "./reasons.js";
import { hashOf, replaceHash } from "./routes.js";
import { KeyField } from "./search.js";

/** Locations per group in the first answer, and after "Show more". */
const PLACES = 20;
const PLACES_MAX = 1_000;
const HEADINGS = ["State", "Records", "Earliest deletion", "Latest deletion", "Rule", "Locations"];

const DUE = {
  "erasure.cleaning_due": "by the next pass",
  "erasure.retention_due": "by retention",
  "erasure.start_due": "when a broker starts",
  "erasure.not_due": "only after an append",
};

export function KeyPlaces({ topic, partition, query, about, isMeant }) {
  const { key = null, as = "text" } = query;
  const [draft, setDraft] = useState({ text: key ?? "", format: as });
  const [most, setMost] = useState(PLACES);
  useEffect(() => setDraft({ text: key ?? "", format: as }), [key, as]);
  const parsed = key === null ? null : parseKey(as, key);
  const target = withQuery(`${path("partitions", topic, partition)}/erasure`, { ...parsed, places: most });
  // The request reads the whole partition, so the user decides when to refresh it.
  const request = useAnswer(parsed === null ? null : target, {
    on: ["partitions", "cleaned"],
    isMeant,
    isCostly: true,
  });
  const submit = (event) => {
    event.preventDefault();
    const { text, format } = draft;
    if (text === key && format === as) request.reload();
    else replaceHash(hashOf(["t", topic, partition, "key"], { key: text, as: format === "text" ? null : format }));
  };
  return html`
    <form class="tools" onSubmit=${submit}>
      <${KeyField} isWide required text=${draft.text} format=${draft.format} onChange=${(text, format) => setDraft({ text, format })} />
      <button type="submit" class="primary">Find it</button>
      ${parsed !== null && html`<a class="button" href=${hashOf(["t", topic, partition, "records"], { key, as: as === "text" ? null : as })}>Its records</a>`}
    </form>
    ${key === null && html`
      <p class="dim">
        Shows where a key's bytes are, including files pending deletion, and when they can be deleted.
        To pick a key, open a record or the tab Keys and sizes.
      </p>
    `}
    ${key !== null && parsed === null && html`<p class="complaint" role="alert">“${key}” is not a key in the format ${as}.</p>`}
    ${parsed !== null && html`
      <${Requested} of=${request} what="Key">
        ${(answer) => html`<${Found} answer=${answer} onMore=${() => setMost(PLACES_MAX)} topic=${topic} partition=${partition} />
          <${Command} line=${commandLine(topic, partition, as, parsed, about)} />`}
      </${Requested}>
    `}
  `;
}

// The command line takes keys as text. Other bytes are quoted for the shell as $'…'.
function commandLine(topic, partition, as, { key, key_base64: base64 }, about) {
  const word = key !== undefined
    ? quoted(key)
    : `$'${[...atob(base64)].map((byte) => `\\x${byte.charCodeAt(0).toString(16).padStart(2, "0")}`).join("")}'`;
  return `logstore erasure ${quoted(topic)} --partition ${partition} --key ${word}${directoryOption(about)}`;
}

function Found({ answer, onMore, topic, partition }) {
  const { groups, scanned, total, now_ms: nowMs } = answer;
  const when = (ms, none) => html`<${When} ms=${ms} nowMs=${nowMs} none=${none} />`;
  const [opened, setOpened] = useState(null);
  return html`
    <p role="status">
      ${answer.gone
        ? html`<${Badge} kind="good">deleted</${Badge}> No file has a record with this key`
        : html`<${Badge}>found</${Badge}> ${plural(total, "record")} of this key`}:
      ${" "}${plural(scanned.files, "file")}, ${formatBytes(scanned.bytes)} were read.
    </p>
    ${total > 0 && html`
      <p>
        ${answer.earliest_ms == null
          ? "Some of them are deleted only after another event."
          : html`All can be deleted <strong>${when(answer.earliest_ms)}</strong> at the earliest${answer.latest_ms != null && html`, <strong>${when(answer.latest_ms)}</strong> at the latest`}.`}
      </p>
      <${Rows} stacks label="Locations of this key" numbers=${["Records"]} headings=${HEADINGS}>
        ${groups.map((group, index) => {
          const isOpen = opened === index;
          const places = answer.places.filter((place) => isSame(place, group));
          return html`
            <tr key=${index}>
              <th scope="row">
                ${group.state.replaceAll("_", " ")}
                ${groups.some((other) => other !== group && other.state === group.state) && html`<span class="explanation">${dueInWords(group, nowMs)}</span>`}
                <${Offsets} of=${group} topic=${topic} partition=${partition} />
              </th>
              <td class="is-number" data-heading=${HEADINGS[1]}>${formatCount(group.count)}</td>
              <td data-heading=${HEADINGS[2]}>${when(group.earliest_ms, "never automatically")}</td>
              <td data-heading=${HEADINGS[3]}>${when(group.latest_ms, "unknown")}</td>
              <td class="is-value" data-heading=${HEADINGS[4]}>${renderAll(group.reasons)}</td>
              <td>
                <button type="button" class="quiet" aria-expanded=${isOpen} onClick=${() => setOpened(isOpen ? null : index)}>
                  ${isOpen ? "Hide" : "Show"}<span class="unseen"> locations of ${group.state}</span>
                </button>
                <span class="explanation">${plural(group.files, "file")}</span>
              </td>
            </tr>
            ${isOpen && html`<tr class="opened"><td colspan="6">
              <ul class="places">${places.map((place) => html`<${Place} key=${`${place.path} ${place.position} ${place.offset}`} place=${place} topic=${topic} partition=${partition} />`)}</ul>
              ${places.length < group.count && html`<p class="dim">${plural(places.length, "location")} of ${formatCount(group.count)}.
                ${" "}<button type="button" class="quiet" onClick=${onMore}>Show up to ${formatCount(PLACES_MAX)}</button></p>`}
            </td></tr>`}
          `;
        })}
      </${Rows}>
    `}
    ${answer.assumed?.length > 0 && html`<ul class="plain-list dim">${answer.assumed.map((each) => html`<li>${each}</li>`)}</ul>`}
  `;
}

/** What distinguishes groups of the same state: the event that makes their removal due. */
export function dueInWords({ reasons }, nowMs) {
  const due = reasons.find(({ code }) => code in DUE);
  if (due === undefined) return "after another event";
  return due.values.at_ms > nowMs ? `${DUE[due.code]}, later` : DUE[due.code];
}

/** The first and the last offset of a group. */
function Offsets({ of: { first_offset: first, last_offset: last }, topic, partition }) {
  if (first == null) return null;
  const link = (offset) => html`<a href=${hashOf(["t", topic, partition, "records"], { from: offset })}>${formatCount(offset)}</a>`;
  return html`<span class="explanation">
    ${first === last ? html`offset ${link(first)}` : html`offsets ${link(first)} to ${link(last)}`}
  </span>`;
}

function isSame(place, group) {
  return place.state === group.state && codesOf(place) === codesOf(group);
}

function codesOf({ reasons }) {
  return reasons.map(({ code }) => code).join();
}

function Place({ place, topic, partition }) {
  const { offset, position, path: file } = place;
  const name = file.split("/").at(-1);
  return html`<li>
    ${offset == null ? "no offset" : html`<a href=${hashOf(["t", topic, partition, "records"], { from: offset })}>${formatCount(offset)}</a>`}
    ${" "}<span class="dim">in <code>${name}</code> at ${formatCount(position)}</span>
  </li>`;
}

/** A time and its distance from now, or `none`. */
function When({ ms, nowMs, none }) {
  if (ms == null) return html`<span class="dim">${none}</span>`;
  return html`<${Time} ms=${ms} />, ${ms <= nowMs ? "now" : `in ${formatDuration(ms - nowMs)}`}`;
}
