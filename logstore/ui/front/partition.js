// A partition: facts, segment map, and tabs with details.

import { html, useCallback, useEffect, useMemo, useState } from "./vendor/htm-preact.js";
import { concerns, path, subscribe, useAnswer, withQuery } from "./api.js";
import { Curves } from "./curves.js";
import { PartitionActions } from "./actions.js";
import { Explain } from "./explain.js";
import { formatBytes, formatCount, formatDuration, formatRatio, plural } from "./format.js";
import { KeyPlaces } from "./key.js";
import { Delay, Policy } from "./list.js";
import {
  Requested,
  Badge,
  Bar,
  Empty,
  Facts,
  Failure,
  Loading,
  Rows,
  Time,
  directoryOption,
  quoted,
  useTitle,
} from "./parts.js";
import { Fates, Segment, Tombstones } from "./records.js";
import { hashOf, replaceHash } from "./routes.js";
import { RecordBrowser } from "./search.js";
import { PartitionMap } from "./segment-map.js";
import { Statistics } from "./stats.js";
import { Verdict } from "./verdict.js";

/** Log size above which answers that read the whole log are not refreshed automatically. */
const LIGHT_BYTES = 16 * 1024 * 1024;

const HELD_MS = 2_000;

const TABS = [
  ["explain", "Overview"],
  ["records", "Records"],
  ["stats", "Keys and sizes"],
  ["key", "One key"],
  ["tombstones", "Tombstones"],
  ["fates", "Fates"],
  ["history", "History"],
];

function never() {
  return false;
}

export function Page({ params, about, refreshAbout }) {
  const { topic, partition, query } = params;
  const name = `${topic}-${partition}`;
  useTitle(name);
  const isMeant = useCallback((data) => concerns(data, topic, partition), [topic, partition]);
  const request = useAnswer(path("partitions", topic, partition), {
    on: ["partitions", "cleaned", "clock"],
    isMeant,
  });
  useEffect(() => {
    // A dry run also locks the partition, and no event reports when it ends.
    if (request.answer?.in_progress == null) return undefined;
    const timer = setTimeout(request.reload, HELD_MS);
    return () => clearTimeout(timer);
  }, [request.answer]);
  const detail = useMemo(() => request.answer && detailOf(request.answer), [request.answer]);
  const tab = TABS.some(([key]) => key === params.section) ? params.section : "explain";
  const here = (section, more) => hashOf(["t", topic, partition, section], more);
  const read = {
    topic,
    partition,
    // The logs of a copied directory do not change.
    isMeant: about.read_only ? never : isMeant,
    about,
    nowMs: about.clock?.now_ms,
    isCostly: detail !== null && detail.size_bytes > LIGHT_BYTES,
  };
  const done = () => {
    request.reload();
    refreshAbout?.();
  };

  return html`
    <nav class="crumbs" aria-label="Above this page">
      <a href=${hashOf()}>Partitions</a>
      <span aria-hidden="true">/</span>
      <a href=${hashOf(["t", topic])}>${topic}</a>
    </nav>
    <div class="heading">
      <h1>${topic}<wbr />-${partition}</h1>
      ${detail?.in_progress != null && html`<${Badge} kind="busy">${detail.in_progress}</${Badge}>`}
      <a class="button" href=${hashOf(["t", topic, "settings"])}>Settings of ${topic}</a>
    </div>
    ${request.error !== null && html`<${Failure} error=${request.error} onRetry=${request.reload} />`}
    ${detail === null && request.error === null && html`<${Loading} />`}
    ${detail !== null && html`
      <${Verdict} topic=${topic} partition=${partition} detail=${detail} about=${about} isBrief=${tab !== "explain"} onMeasured=${request.reload} />
      ${detail.uncleanable != null && html`<${Uncleanable} detail=${detail} />`}
      <${Working} topic=${topic} partition=${partition} />
      <nav class="tabs" aria-label="Details of this partition">
        ${TABS.map(([key, title]) => html`
          <a key=${key} href=${here(key)} aria-current=${key === tab ? "true" : null} onClick=${(event) => (event.preventDefault(), replaceHash(here(key)))}>${title}</a>
        `)}
      </nav>
      <div>
        ${tab !== "explain" && html`<h2 class="unseen">${TABS.find(([key]) => key === tab)[1]}</h2>`}
        ${tab === "explain" && html`<${Overview} ...${read} detail=${detail} onDone=${done} />`}
        ${tab === "records" && html`<${RecordBrowser} ...${read} query=${query} start=${detail.log_start_offset} end=${detail.log_end_offset} />`}
        ${tab === "stats" && html`<${Statistics} ...${read} />`}
        ${tab === "tombstones" && html`<${Tombstones} ...${read} isCompacted=${detail.cleanable_ratio !== null} />`}
        ${tab === "fates" && html`<${Fates} ...${read} />`}
        ${tab === "key" && html`<${KeyPlaces} ...${read} query=${query} />`}
        ${tab === "history" && html`<${History} ...${read} />`}
      </div>
    `}
  `;
}

/** Facts about a partition, its operations, its segments, and why it is cleaned or not. */
function Overview({ detail, onDone, ...read }) {
  const { topic, partition, about, isMeant } = read;
  const [opened, setOpened] = useState(null);
  const close = () => {
    setOpened(null);
    document.querySelector('.segment-map [tabindex="0"]')?.focus();
  };
  const compare = ({ exact, state }) => {
    if (exact !== detail.verdict.exact || state !== detail.verdict.state) onDone();
  };
  return html`
    <${Damages} detail=${detail} />
    <${Header} detail=${detail} />
    <${PartitionActions} topic=${topic} partition=${partition} detail=${detail} about=${about} onDone=${onDone} />
    <section class="panel" aria-labelledby="segments-title">
      <h2 id="segments-title">Segments</h2>
      <${PartitionMap}
        topic=${topic}
        partition=${partition}
        selected=${opened?.first ?? null}
        onOpen=${setOpened}
        isMeant=${isMeant}
        isCostly=${read.isCostly || detail.uncleanable != null}
      />
    </section>
    ${opened !== null && html`<${Segment} key=${opened.base_offset} topic=${topic} partition=${partition} segment=${opened} onClose=${close} />`}
    <section class="panel" aria-labelledby="decision-title">
      <h2 id="decision-title">Cleaning decision</h2>
      <${Explain} ...${read} onVerdict=${compare} />
    </section>
  `;
}

/** A partition converted to a row of the list, for shared components. */
function detailOf(answer) {
  const { decision } = answer;
  const isCompacted = /\bcompact\b/.test(answer.cleanup_policy ?? "");
  return {
    ...answer,
    path: answer.directory,
    cleanable_ratio: isCompacted ? answer.cleanable_ratio : null,
    dirty_bytes: isCompacted ? decision?.cleanable_bytes : null,
    max_compaction_delay_ms: decision?.max_compaction_delay_ms ?? null,
    must_clean: decision?.max_compaction_delay_ms > 0,
  };
}

function Header({ detail }) {
  const { cleanable_ratio: ratio } = detail;
  const least = detail.min_cleanable_dirty_ratio;
  return html`
    <${Facts}
      facts=${[
        ["Size", formatBytes(detail.size_bytes), detail.deleted_bytes > 0 && `and ${formatBytes(detail.deleted_bytes)} pending deletion`],
        ["Records", formatCount(detail.records), detail.holes > 0 && `${plural(detail.holes, "offset")} gone`],
        ["Policy", html`<${Policy} row=${detail} />`],
        ratio != null && [
          "Dirty ratio",
          html`<span class="bar-with-words"><span>${formatRatio(ratio)}</span><${Bar} share=${ratio} kind="dirty" mark=${least} /></span>`,
          least != null && `due from ${formatRatio(least)}`,
        ],
        ["Delay and limit", html`<${Delay} row=${detail} />`],
      ]}
    />
    <details class="more">
      <summary>Offsets and directory</summary>
      <${Facts}
        facts=${[
          ["Log start offset", formatCount(detail.log_start_offset)],
          ["First dirty offset", formatCount(detail.first_dirty_offset)],
          ["First uncleanable offset", formatCount(detail.first_uncleanable_offset)],
          ["Last stable offset", formatCount(detail.last_stable_offset)],
          ["High watermark", formatCount(detail.high_watermark)],
          ["Log end offset", formatCount(detail.log_end_offset)],
          ["Directory", html`<code>${detail.path}</code>`],
        ]}
      />
    </details>
  `;
}

function Uncleanable({ detail }) {
  const { reason, since_ms: sinceMs } = detail.uncleanable;
  return html`
    <div class="notice is-bad">
      <p>
        <strong>This partition is uncleanable.</strong> Cleaning failed${sinceMs != null && html` at <${Time} ms=${sinceMs} />`}: ${reason}
      </p>
    </div>
  `;
}

/** Repairs that recovery would make, and other damage. */
function Damages({ detail }) {
  const recovery = detail.recovery ?? [];
  const damages = detail.damages ?? [];
  if (recovery.length + damages.length === 0) return null;
  return html`
    <details class="notice is-warn notes" open=${detail.verdict.state !== "damaged"}>
      <summary>${[recovery.length > 0 && plural(recovery.length, "repair"), damages.length > 0 && plural(damages.length, "damaged range")].filter(Boolean).join(", ")}</summary>
      ${recovery.length > 0 && html`
        <p><strong>Opening this log for writing would repair it:</strong></p>
        <ul class="plain-list">${recovery.map((each) => html`<li>${each.action}: <code>${shortPath(each.path)}</code> ${each.detail}</li>`)}</ul>
      `}
      ${damages.length > 0 && html`
        <ul class="plain-list">${damages.map((each) => html`<li><code>${shortPath(each.path)}</code> at position ${formatCount(each.position)}, ${formatBytes(each.size_bytes)}: ${each.check}</li>`)}</ul>
      `}
    </details>
  `;
}

function shortPath(path) {
  return path.split("/").slice(-2).join("/");
}

/** Progress of the current cleaning pass. */
function Working({ topic, partition }) {
  const [work, setWork] = useState(null);
  useEffect(
    () =>
      subscribe("cleaning", (data) => {
        const all = data?.under_way ?? [];
        setWork(all.find((each) => each.topic === topic && each.partition === partition) ?? null);
      }),
    [topic, partition],
  );
  if (work === null) return null;
  const { bytes_done: done, bytes_total: total } = work;
  return html`
    <div class="notice">
      <p role="status"><${Badge} kind="busy">being cleaned</${Badge}> ${work.phase}</p>
      ${total > 0 && html`
        <label class="progress">
          <span>${formatBytes(done)} of ${formatBytes(total)}</span>
          <progress max=${total} value=${done}></progress>
        </label>
      `}
    </div>
  `;
}

// -- history -------------------------------------------------------------------------------

function History({ topic, partition, about, isMeant }) {
  const request = useAnswer(withQuery("history", { topic, partition }), {
    on: ["partitions", "cleaned"],
    isMeant,
  });
  return html`
    <${Requested} of=${request} what="History">
      ${(answer) => html`
        <h3>Since the server started</h3>
        ${Object.values(answer.series ?? {}).some((each) => each.points.length > 0)
          ? html`<${Curves} series=${answer.series} />`
          : html`<${Empty}>No measurements. Only a running broker has them.</${Empty}>`}
        <h3 class="spaced">Cleanings</h3>
        <${Cleanings} cleanings=${answer.cleanings ?? []} topic=${topic} about=${about} />
      `}
    </${Requested}>
  `;
}

const PASSES = ["When", "Offsets", "Read", "Written", "Kept", "Gone", "Took"];

function Cleanings({ cleanings, topic, about }) {
  if (cleanings.length === 0) {
    return html`<${Empty} line=${`logstore clean ${quoted(topic)} --dry-run${directoryOption(about)}`}>No cleaning passes since then. To see what a pass would do:</${Empty}>`;
  }
  return html`
    <${Rows} label="Cleanings" headings=${PASSES} numbers=${PASSES.slice(2)}>
      ${cleanings.map((each) => {
        const sum = Object.values(each.fates ?? {}).reduce((total, count) => total + count, 0);
        const kept = each.fates?.retained ?? each.messages_written;
        return html`
          <tr>
            <td><${Time} ms=${each.at_ms} /></td>
            <td>${formatCount(each.first_dirty_offset)} to ${formatCount(each.end_offset)}</td>
            <td class="is-number">${formatBytes(each.bytes_read)}</td>
            <td class="is-number">${formatBytes(each.bytes_written)}</td>
            <td class="is-number">${formatCount(kept)}</td>
            <td class="is-number">${formatCount(sum - kept)}</td>
            <td class="is-number">${formatDuration((each.index_ms ?? 0) + (each.clean_ms ?? 0))}</td>
          </tr>
        `;
      })}
    </${Rows}>
  `;
}
