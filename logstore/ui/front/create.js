// The dialog to create a topic: name, partitions and cleanup settings.

import { html, useState } from "./vendor/htm-preact.js";
import { ActionDialog, Check, DialogButton, may, TextField } from "./actions.js";
import { plural } from "./format.js";
import { hashOf } from "./routes.js";

/** The button in the toolbar of the list, and its dialog. */
export function CreateTopic({ about, onDone }) {
  if (!may(about, "create-topic")) return null;
  return html`<${DialogButton} class="primary"
    dialog=${(onClose) => html`<${CreateDialog} onClose=${onClose} onDone=${onDone} />`}>Create a topic …<//>`;
}

function CreateDialog({ onClose, onDone }) {
  const [name, setName] = useState("");
  const [partitions, setPartitions] = useState("1");
  const [policy, setPolicy] = useState(["delete"]);
  const [lines, setLines] = useState("");
  const configs = { "cleanup.policy": policy.join(","), ...pairs(lines) };
  const count = Number(partitions);
  const isReady = name.trim() !== "" && Number.isInteger(count) && count > 0;
  const toggle = (word) => (isOn) =>
    setPolicy(["compact", "delete"].filter((each) => (each === word ? isOn : policy.includes(each))));
  return html`<${ActionDialog} title="Create a topic" verb="Create" path="topics"
    body=${isReady ? { name: name.trim(), partitions: count, configs } : null}
    renderDryRun=${() => null} topic=${name.trim()}
    describe=${(done) => `Created topic ${done.name} with ${plural(done.partitions, "partition")}.`}
    links=${[[hashOf(["t", name.trim()]), `Show ${name.trim()}`], [hashOf(["t", name.trim(), "settings"]), "Its settings"]]}
    onClose=${onClose} onDone=${onDone}>
    <${TextField} label="Name" value=${name} onInput=${setName} required
      hint="Letters, digits, dot, hyphen and underscore." />
    <${TextField} label="Partitions" value=${partitions} onInput=${setPartitions} inputmode="numeric"
      hint="How many." />
    <fieldset>
      <legend>cleanup.policy: how records are removed</legend>
      <${Check} label="compact" checked=${policy.includes("compact")} onChange=${toggle("compact")}>
        Removes all but the latest record of each key; every record needs a key.
      <//>
      <${Check} label="delete" checked=${policy.includes("delete")} onChange=${toggle("delete")}>
        Whole segments, by age (retention.ms) and size (retention.bytes).
      <//>
    </fieldset>
    <${Lines} value=${lines} onInput=${setLines} />
  <//>`;
}

function Lines({ value, onInput }) {
  return html`<div class="field">
    <label for="create-lines">Further settings</label>
    <textarea id="create-lines" rows="3" value=${value} spellcheck=${false}
      aria-describedby="create-lines-hint" placeholder="e.g. retention.ms=7d"
      onInput=${(event) => onInput(event.target.value)}></textarea>
    <p class="hint" id="create-lines-hint">One key=value per line; all settings can be changed later.</p>
  </div>`;
}

// A line without "=" is sent as a key without a value, and the server reports the error.
function pairs(lines) {
  return Object.fromEntries(
    lines
      .split("\n")
      .map((line) => line.trim())
      .filter((line) => line !== "" && !line.startsWith("#"))
      .map((line) => {
        const [key, ...rest] = line.split("=");
        return [key.trim(), rest.join("=").trim()];
      }),
  );
}
