// Statistics of a partition: live and dead records, most frequent keys, and sizes.

import { html, useState } from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { lineOf } from "./bytes.js";
import { formatBytes, formatCount, formatRatio, plural } from "./format.js";
import { keyQuery } from "./keys.js";
import { Bar, Empty, Facts, Requested, Rows } from "./parts.js";
import { hashOf } from "./routes.js";

const TOP = 20;
const TOP_MORE = 200;

/** Labels of the reasons why records are dead. */
const DEAD = {
  superseded: "superseded by a later record with the same key",
  tombstone: "tombstones (latest record of their key)",
  aborted: "in aborted transactions",
  open_transaction: "in open transactions",
  unstable: "after an open transaction",
  control: "transaction markers",
  below_log_start: "below the log start offset",
};

export function Statistics({ topic, partition, isMeant, isCostly }) {
  const [top, setTop] = useState(TOP);
  const [by, setBy] = useState("records");
  const target = withQuery(`${path("partitions", topic, partition)}/stats`, { top });
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant, isCostly });
  return html`
    <${Requested} of=${request} what="Statistics">
      ${(answer) => answer.records === 0 ? html`<${Empty}>This partition is empty.</${Empty}>` : html`
        <${Facts}
          facts=${[
            ["Live records", formatCount(answer.live_records), `${formatRatio(answer.live_records / answer.records)} of ${formatCount(answer.records)}`],
            ["Live bytes", formatBytes(answer.live_bytes), `of ${formatBytes(answer.record_bytes)}, uncompressed`],
            ["Files", formatBytes(answer.bytes), `${plural(answer.segments.length, "segment")}, ${plural(answer.batches, "batch", "batches")}`],
            ["Keys", formatCount(answer.distinct_keys), `${formatCount(answer.live_keys)} with a live record`],
            ["Tombstones", formatCount(answer.tombstones), "including superseded ones"],
            answer.keyless_records > 0 && ["Without a key", formatCount(answer.keyless_records)],
            answer.records_with_headers > 0 && ["With headers", formatCount(answer.records_with_headers)],
          ]}
        />
        <div class="columns">
          <section class="panel" aria-labelledby="stats-keys">
            <div class="heading">
              <h2 id="stats-keys">Top keys</h2>
              <span class="views" role="group" aria-label="Sort keys by">
                ${["records", "bytes"].map((name) => html`<button type="button" key=${name} class="quiet" aria-pressed=${by === name} onClick=${() => setBy(name)}>by ${name}</button>`)}
              </span>
            </div>
            <${TopKeys} keys=${by === "records" ? answer.top_keys : answer.top_keys_by_bytes} by=${by} answer=${answer} topic=${topic} partition=${partition} />
            ${top === TOP && answer.distinct_keys > TOP && html`<button type="button" onClick=${() => setTop(TOP_MORE)}>Show ${TOP_MORE} keys</button>`}
          </section>
          <div>
            <section class="panel" aria-labelledby="stats-dead">
              <h2 id="stats-dead">Dead records</h2>
              <${Shares} items=${Object.entries(answer.dead).map(([why, count]) => [DEAD[why] ?? why, count])} all=${answer.records} none="None." />
            </section>
            <section class="panel" aria-labelledby="stats-sizes">
              <h2 id="stats-sizes">Sizes</h2>
              <${Sizes} title="Keys" sizes=${answer.key_sizes} />
              <${Sizes} title="Values" sizes=${answer.value_sizes} />
            </section>
            <section class="panel" aria-labelledby="stats-codecs">
              <h2 id="stats-codecs">Compression and headers</h2>
              <${Shares} items=${answer.codecs.map(({ codec, batches }) => [codec === "none" ? "not compressed" : codec, batches])} all=${answer.batches} none="No batches." unit="batch" units="batches" />
              <${Shares} items=${answer.headers.map(({ name, records }) => [`header ${name}`, records])} all=${answer.records} none="No record has headers." />
            </section>
          </div>
        </div>
        ${answer.damages.length > 0 && html`<ul class="plain-list is-bad">${answer.damages.map((text) => html`<li>${text}</li>`)}</ul>`}
      `}
    </${Requested}>
  `;
}

function TopKeys({ keys, by, answer, topic, partition }) {
  if (keys.length === 0) return html`<p>No record has a key.</p>`;
  const all = by === "records" ? answer.records : answer.record_bytes;
  return html`
    <${Rows} label="Keys with the most records or bytes" headings=${["Key", "Records", "Bytes", "Share"]} numbers=${["Records", "Bytes"]}>
      ${keys.map((key) => {
        const query = keyQuery(key);
        return html`
          <tr key=${JSON.stringify(query)}>
            <th scope="row" class="top-key"><a href=${hashOf(["t", topic, partition, "key"], query)}><code>${lineOf(key, "key") || "(empty)"}</code></a></th>
            <td class="is-number">${formatCount(key.records)}</td>
            <td class="is-number">${formatBytes(key.bytes)}</td>
            <td><span class="share"><${Bar} share=${key[by] / all} kind="lag" /> ${formatRatio(key[by] / all)}</span></td>
          </tr>
        `;
      })}
    </${Rows}>
  `;
}

/** Numbers and their shares of a total, as bars. Zeros are omitted. */
function Shares({ items, all, none, unit = "record", units }) {
  const counted = items.filter(([, count]) => count > 0);
  if (counted.length === 0) return html`<p class="dim">${none}</p>`;
  return html`
    <ul class="fates">
      ${counted.map(([words, count]) => html`
        <li key=${words}>
          <span>${words}</span>
          <${Bar} share=${count / all} kind="lag" />
          <span>${plural(count, unit, units)} <span class="dim">${formatRatio(count / all)}</span></span>
        </li>
      `)}
    </ul>
  `;
}

/** A histogram of sizes by powers of two. */
function Sizes({ title, sizes }) {
  const { count, nulls, bytes, min, max, histogram } = sizes;
  if (count === 0) return html`<p class="dim">${title}: none${nulls > 0 && `, ${formatCount(nulls)} null`}.</p>`;
  return html`
    <h3>${title}: ${min === max ? formatBytes(min) : `${formatBytes(min)} to ${formatBytes(max)}`}</h3>
    <p class="dim">${formatBytes(Math.round(bytes / count))} on average${nulls > 0 && `; ${formatCount(nulls)} null`}</p>
    <${Shares} items=${histogram.map(({ from, to, count: each }) => [from === to ? formatBytes(from) : `${formatBytes(from)} to ${formatBytes(to)}`, each])} all=${count} none="" />
  `;
}
