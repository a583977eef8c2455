// Why a partition is cleaned or not: gates, causes and remedies.

import { html, useEffect } from "./vendor/htm-preact.js";
import { path, useAnswer } from "./api.js";
import { formatBytes, formatCount, formatDuration, plural } from "./format.js";
import { Requested, Time } from "./parts.js";
import { render, renderAll, words } from "./reasons.js";
import { isForeseen, Opening } from "./verdict.js";

/** Gates of which only one must be open. */
const EITHER = ["dirty_ratio", "max_compaction_lag"];

export function Explain({ topic, partition, nowMs, isMeant, isCostly, onVerdict }) {
  const request = useAnswer(`${path("partitions", topic, partition)}/explain`, {
    on: ["partitions", "cleaned", "clock"],
    isMeant,
    isCostly,
  });
  // The explanation reads more than the summary does. It may find damage, and it computes how many
  // bytes a due pass would free.
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
  const tombstones = item.tombstones;
  return html`
    <div>
      <p class="headline">
        ${render(item.reason)}
        ${isForeseen(item) && html`<span>; a running <${Opening} of=${item} nowMs=${nowMs} /></span>`}
      </p>

      ${remedies.length > 1 && html`<p>${remedies.length === 2 ? "Both" : `All ${remedies.length}`} of the following conditions must be met.</p>`}
      ${remedies.length > 0 && html`
        <div class="remedies">
          ${remedies.map((remedy) => html`
            <div key=${remedy.gate} class="remedy">
              <h3>Not met: ${words("condition", remedy.gate)}</h3>
              <p>${renderAll(remedy.causes)}.</p>
              <p><strong>${remedy.cures.length > 1 ? "Remedies (one is enough)" : "Remedy"}:</strong> ${renderAll(remedy.cures, "; or ")}.</p>
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
        <h3>The active segment ${formatCount(active.base_offset)} (${formatBytes(active.size_bytes)}) is rolled by</h3>
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

/** Whether a gate need not open, because an alternative is open. */
function isSpared({ gate }, gates) {
  return EITHER.includes(gate) && gates.some((other) => EITHER.includes(other.gate) && other.open);
}

function Gate({ gate, gates, nowMs }) {
  const spared = isSpared(gate, gates);
  const [mark, word] = gate.open ? ["✓", "met"] : spared ? ["–", "not needed"] : ["✕", "not met"];
  const opens = gate.open || gate.opens_at_ms == null ? null : gate.opens_at_ms;
  return html`
    <li class=${`gate ${gate.open ? "is-open" : spared ? "is-spared" : "is-closed"}`}>
      <span class="gate-mark" aria-hidden="true">${mark}</span>
      <span class="gate-name">${words("condition", gate.gate)}<span class="unseen"> ${word}: </span></span>
      <span class="gate-text">
        ${render(gate)}
        ${opens !== null && html`<span class="explanation">will be met at <${Time} ms=${opens} />${nowMs != null && `, in ${formatDuration(opens - nowMs)}`}</span>`}
        ${!gate.open && !spared && opens === null && html`<span class="explanation">will not be met by waiting</span>`}
      </span>
    </li>
  `;
}

/** Remedies for the binding gate, and for gates that do not open by themselves. */
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
