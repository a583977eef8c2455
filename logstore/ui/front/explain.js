// Why a partition is cleaned or not: conditions, causes and remedies.

import { html, useEffect } from "./vendor/htm-preact.js";
import { path, useAnswer } from "./api.js";
import { formatBytes, formatCount, formatDuration, plural } from "./format.js";
import { Requested, Time } from "./parts.js";
import { render, renderAll, words } from "./reasons.js";

/** Gates of which one open gate is sufficient. */
const EITHER = ["dirty_ratio", "max_compaction_lag"];

export function Explain({ topic, partition, nowMs, isMeant, isCostly, onVerdict }) {
  const request = useAnswer(`${path("partitions", topic, partition)}/explain`, {
    on: ["partitions", "cleaned", "clock"],
    isMeant,
    isCostly,
  });
  // The explanation reads more than the summary of the partition: it may find damage, and it measures
  // the bytes that a due pass frees.
  useEffect(() => {
    if (request.answer?.verdict != null) onVerdict(request.answer.verdict);
  }, [request.answer]);
  return html`
    <${Requested} of=${request} what="Explanation">
      ${(answer) => html`<${Explanation} item=${answer} nowMs=${nowMs} />`}
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
        ${render(item.reason)}
        ${!item.will_clean && item.opens_at_ms != null && html`<span>; a running ${isRolled ? "logstore broker" : "cleaner"} would clean it from <${Time} ms=${item.opens_at_ms} /> on${nowMs != null && `, in ${formatDuration(item.opens_at_ms - nowMs)}`}</span>`}
      </p>

      ${remedies.length > 1 && html`<p>${remedies.length === 2 ? "Both" : `All ${remedies.length}`} conditions below must be met.</p>`}
      ${remedies.length > 0 && html`
        <div class="remedies">
          ${remedies.map((remedy) => html`
            <div key=${remedy.gate} class="remedy">
              <h3>Not ${words("condition", remedy.gate)}</h3>
              <p>${renderAll(remedy.causes)}.</p>
              <p><strong>What helps${remedy.cures.length > 1 && " (one is enough)"}:</strong> ${renderAll(remedy.cures, "; or ")}.</p>
            </div>
          `)}
        </div>
      `}

      <details class="more" open=${!item.will_clean}>
        <summary>${conditionsInWords(gates)}</summary>
        <ul class="gates">
          ${gates.map((gate) => html`<${Gate} key=${gate.gate} gate=${gate} gates=${gates} nowMs=${nowMs} />`)}
        </ul>
      </details>

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

function conditionsInWords(gates) {
  const open = gates.filter((gate) => gate.open || isSpared(gate, gates)).length;
  return `Conditions: ${open} of ${gates.length} hold`;
}

/** Whether a gate need not be open, because another one is. */
function isSpared({ gate }, gates) {
  return EITHER.includes(gate) && gates.some((other) => EITHER.includes(other.gate) && other.open);
}

function Gate({ gate, gates, nowMs }) {
  const spared = isSpared(gate, gates);
  const [mark, word] = gate.open ? ["✓", "holds"] : spared ? ["–", "not needed"] : ["✕", "does not hold"];
  const opens = gate.open || gate.opens_at_ms == null ? null : gate.opens_at_ms;
  return html`
    <li class=${`gate ${gate.open ? "is-open" : spared ? "is-spared" : "is-closed"}`}>
      <span class="gate-mark" aria-hidden="true">${mark}</span>
      <span class="gate-name">${words("condition", gate.gate)}<span class="unseen"> ${word}: </span></span>
      <span class="gate-text">
        ${render(gate)}
        ${opens !== null && html`<span class="explanation">opens by itself at <${Time} ms=${opens} />${nowMs != null && `, in ${formatDuration(opens - nowMs)}`}</span>`}
        ${!gate.open && !spared && opens === null && html`<span class="explanation">does not open by itself</span>`}
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
