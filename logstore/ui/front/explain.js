// Why a partition is cleaned or not: conditions, causes and remedies.

import { html } from "./vendor/htm-preact.js";
import { path, useAnswer } from "./api.js";
import { formatBytes, formatCount, formatDuration, plural } from "./format.js";
import { Badge, Time, Requested } from "./parts.js";
import { render, renderAll, words } from "./reasons.js";

/** Gates of which one open gate is sufficient. */
const EITHER = ["dirty_ratio", "max_compaction_lag"];

export function Explain({ topic, partition, nowMs, isMeant, isCostly }) {
  const request = useAnswer(`${path("partitions", topic, partition)}/explain`, {
    on: ["partitions", "cleaned", "clock"],
    isMeant,
    isCostly,
  });
  return html`
    <${Requested} of=${request} what="Explanation">
      ${(answer) => {
        const items = answer.partitions ?? [answer];
        return items.map((item) => html`<${Explanation} item=${item} nowMs=${nowMs} />`);
      }}
    </${Requested}>
  `;
}

/** An item of `logstore explain --format json`. */
export function Explanation({ item, nowMs }) {
  const gates = item.gates ?? [];
  const active = item.active_segment;
  const closings = active?.closings ?? [];
  const remedies = pressing(item);
  // Only logstore rolls an idle segment; Kafka's broker waits for an append.
  const isRolled = gates.some((gate) => gate.gate === "active_segment" && !gate.open);
  const tombstones = item.tombstones;
  return html`
    <div>
      <p class="headline">
        <${Badge} kind=${item.will_clean ? "good" : "warn"}>${item.will_clean ? "will be cleaned" : "not cleaned now"}</${Badge}>
        ${" "}${render(item.reason)}
        ${!item.will_clean && item.opens_at_ms != null && html`<span>; a running ${isRolled ? "logstore broker" : "cleaner"} would clean it from <${Time} ms=${item.opens_at_ms} /> on${nowMs != null && `, in ${formatDuration(item.opens_at_ms - nowMs)}`}</span>`}
      </p>
      ${item.will_clean && item.first_pass != null && html`<${FirstPass} pass=${item.first_pass} />`}

      ${remedies.length > 0 && html`
        <div class="remedies">
          ${remedies.length > 1 && html`<p>All ${remedies.length} conditions below must be met.</p>`}
          ${remedies.map((remedy) => html`
            <div key=${remedy.gate} class="remedy">
              <h3>Not ${words("condition", remedy.gate)}</h3>
              <p>${renderAll(remedy.causes)}.</p>
              <p><strong>What helps${remedy.cures.length > 1 && " (one is enough)"}:</strong> ${renderAll(remedy.cures, "; or ")}.</p>
            </div>
          `)}
        </div>
      `}

      <h3>Conditions</h3>
      <ul class="gates">
        ${gates.map((gate) => html`<${Gate} key=${gate.gate} gate=${gate} gates=${gates} nowMs=${nowMs} />`)}
      </ul>

      ${closings.length > 0 && html`
        <h3>The active segment ${formatCount(active.base_offset)} (${formatBytes(active.size_bytes)}) closes with</h3>
        <ul class="plain-list">${closings.map((closing) => html`<li>${render(closing)}</li>`)}</ul>
      `}
      ${tombstones?.records > 0 && html`
        <h3>${plural(tombstones.records, "tombstone")}</h3>
        <ul class="plain-list">${tombstones.reasons.map((reason) => html`<li>${render(reason)}</li>`)}</ul>
      `}
      ${item.damages?.length > 0 && html`
        <h3>Damage</h3>
        <ul class="plain-list is-bad">${item.damages.map((text) => html`<li>${text}</li>`)}</ul>
      `}
      ${item.assumed?.length > 0 && html`
        <h3>Assumed</h3>
        <ul class="plain-list dim">${item.assumed.map((text) => html`<li>${text}</li>`)}</ul>
      `}
    </div>
  `;
}

function FirstPass({ pass }) {
  const fates = pass.fates ?? {};
  const sum = Object.values(fates).reduce((total, count) => total + count, 0);
  const saved = Math.max(0, (pass.bytes_read ?? 0) - (pass.bytes_written ?? 0));
  return html`
    <p>${formatCount(sum - (fates.retained ?? 0))} of ${plural(sum, "record")} removed, ${formatBytes(saved)} less.</p>
  `;
}

function Gate({ gate, gates, nowMs }) {
  const isSpared =
    EITHER.includes(gate.gate) && gates.some((other) => EITHER.includes(other.gate) && other.open);
  const [mark, word] = gate.open ? ["✓", "holds"] : isSpared ? ["–", "not needed"] : ["✕", "does not hold"];
  const opens = gate.open || gate.opens_at_ms == null ? null : gate.opens_at_ms;
  return html`
    <li class=${`gate ${gate.open ? "is-open" : isSpared ? "is-spared" : "is-closed"}`}>
      <span class="gate-mark" aria-hidden="true">${mark}</span>
      <span class="gate-name">${words("condition", gate.gate)}<span class="unseen"> ${word}: </span></span>
      <span class="gate-text">
        ${render(gate)}
        ${opens !== null && html`<span class="explanation">opens by itself at <${Time} ms=${opens} />${nowMs != null && `, in ${formatDuration(opens - nowMs)}`}</span>`}
        ${!gate.open && !isSpared && opens === null && html`<span class="explanation">does not open by itself</span>`}
      </span>
    </li>
  `;
}

/** The remedies for gates that do not open by the time of the binding gate. */
function pressing(item) {
  const opens = new Map((item.gates ?? []).map((gate) => [gate.gate, gate.opens_at_ms]));
  const binding = item.binding == null ? null : (opens.get(item.binding) ?? null);
  return (item.remedies ?? []).filter(
    (remedy) =>
      remedy.gate === item.binding ||
      (remedy.gate !== "max_compaction_lag" &&
        (binding === null || (opens.get(remedy.gate) ?? null) === null)),
  );
}
