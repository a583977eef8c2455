// One key: locations of its bytes in a partition's files, and when they can be deleted.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { formatBytes, formatCount, formatDuration, plural } from "./format.js";
import { Badge, Command, Time, directoryOption, quoted, Requested } from "./parts.js";
import { renderAll } from "./reasons.js";
import { Rows } from "./records.js";
import { hashOf, replaceHash } from "./routes.js";

export function KeyPlaces({ topic, partition, query, about, isMeant }) {
  const key = query.key ?? null;
  const [text, setText] = useState(key ?? "");
  useEffect(() => setText(key ?? ""), [key]);
  const target = withQuery(`${path("partitions", topic, partition)}/erasure`, { key });
  // The request reads the whole partition, so the user decides when to repeat it.
  const request = useAnswer(key === null ? null : target, {
    on: ["partitions", "cleaned"],
    isMeant,
    isCostly: true,
  });
  const submit = (event) => {
    event.preventDefault();
    if (text === "") return;
    if (text === key) request.reload();
    else replaceHash(hashOf(["t", topic, partition, "key"], { key: text }));
  };
  return html`
    <p class="dim">
      Locations of a key's bytes, including files pending deletion, and the earliest and latest time
      at which each can be deleted.
    </p>
    <form class="tools" onSubmit=${submit}>
      <label class="field is-wide">
        <span>Key, as text</span>
        <input value=${text} required autocomplete="off" spellcheck="false" onInput=${(event) => setText(event.target.value)} />
      </label>
      <button type="submit">Find it</button>
    </form>
    ${key !== null && html`
      <${Requested} of=${request} what="Key">
        ${(answer) => html`<${Found} answer=${answer} about=${about} topic=${topic} partition=${partition} keyText=${key} />`}
      </${Requested}>
    `}
  `;
}

function Found({ answer, about, topic, partition, keyText }) {
  const { places, scanned, now_ms: nowMs } = answer;
  const away = (ms) => (ms <= nowMs ? "now" : `in ${formatDuration(ms - nowMs)}`);
  const timeOr = (ms, none) => (ms == null ? html`<span class="dim">${none}</span>` : html`<${Time} ms=${ms} />, ${away(ms)}`);
  return html`
    <p role="status">
      ${answer.gone
        ? html`<${Badge} kind="good">gone</${Badge}> No file has a record with this key`
        : html`<${Badge}>found</${Badge}> ${plural(places.length, "record")} of this key`}:
      ${" "}${plural(scanned.files, "file")}, ${formatBytes(scanned.bytes)} were read.
    </p>
    ${places.length > 0 && html`
      <${Rows} label="Locations of this key" numbers=${["Offset"]} headings=${["Offset", "State", "Earliest deletion", "Latest deletion", "File", "Reason"]}>
        ${places.map((place) => html`
          <tr key=${`${place.path} ${place.offset}`}>
            <td class="is-number"><a href=${hashOf(["t", topic, partition, "records"], { from: place.offset })}>${formatCount(place.offset)}</a></td>
            <td>${place.state.replaceAll("_", " ")}</td>
            <td>${timeOr(place.earliest_ms, "never by itself")}</td>
            <td>${timeOr(place.latest_ms, "unknown")}</td>
            <td><code>${place.path.split("/").at(-1)}</code><span class="explanation">at ${formatCount(place.position)}</span></td>
            <td class="is-value">${renderAll(place.reasons)}</td>
          </tr>
        `)}
      </${Rows}>
    `}
    ${answer.assumed?.length > 0 && html`<ul class="plain-list dim">${answer.assumed.map((each) => html`<li>${each}</li>`)}</ul>`}
    <${Command} line=${`logstore erasure ${quoted(topic)} --partition ${partition} --key ${quoted(keyText)}${directoryOption(about)}`} />
  `;
}
