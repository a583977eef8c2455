// Broker settings. Dynamic ones can be edited.

import { html, useState } from "./vendor/htm-preact.js";
import { Done, may, ReadOnlyNote } from "./actions.js";
import { Facts, Time, useTitle } from "./parts.js";
import { SettingsForm } from "./settings.js";

/** Groups of keys by subject. The last group has all other keys. */
const GROUPS = [
  [
    "The log cleaner",
    [
      "log.cleaner.enable", "log.cleaner.threads", "log.cleaner.backoff.ms",
      "log.cleaner.io.max.bytes.per.second", "logstore.cleaner.max.read.bytes.per.second",
      "logstore.cleaner.max.write.bytes.per.second", "log.cleaner.dedupe.buffer.size",
      "log.cleaner.io.buffer.size", "log.cleaner.io.buffer.load.factor",
    ],
  ],
  [
    "Topic defaults: cleanup",
    [
      "log.cleanup.policy", "log.retention.ms", "log.retention.minutes", "log.retention.hours",
      "log.retention.bytes", "log.retention.check.interval.ms", "log.segment.delete.delay.ms",
      "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
      "log.cleaner.max.compaction.lag.ms", "log.cleaner.delete.retention.ms",
      "log.cleaner.compaction.strategy", "log.cleaner.compaction.strategy.header",
    ],
  ],
  [
    "Topic defaults: segments",
    [
      "log.segment.bytes", "log.roll.ms", "log.roll.hours", "log.roll.jitter.ms",
      "log.roll.jitter.hours", "log.index.size.max.bytes", "log.index.interval.bytes",
      "log.preallocate",
    ],
  ],
  ["Everything else", []],
];

/** Scopes of a change, and the origin that its values then have. */
const SCOPES = [
  ["dynamic broker", "this broker", {}],
  ["dynamic default", "all brokers of the cluster", { cluster_wide: true }],
];

export function Page({ about }) {
  useTitle("Broker");
  const [here, setHere] = useState(SCOPES[0][0]);
  const scope = SCOPES.find(([origin]) => origin === here)[2];
  return html`<h1>Broker</h1>
    <${Facts} facts=${[
      ["Number", about.node_id],
      ["Version", about.version],
      ["Data directories", about.data_dirs.map((name) => html`<code key=${name}>${name}</code> `)],
      ["Clock", about.clock.kind],
      ["Time", html`<${Time} ms=${about.clock.now_ms} both=${true} />`],
      ["This page acts as", about.principal],
    ]} />
    <${ReadOnlyNote} about=${about} />
    <h2>Settings</h2>
    <p class="summary">
      These apply to every topic without a setting of its own. Fields can be changed while the broker
      runs; the other settings are in its configuration file.
    </p>
    <${SettingsForm} path="broker/configs" groups=${GROUPS} here=${here} scope=${scope}
      mayAlter=${may(about, "alter-broker-configs")}>
      <fieldset class="choices">
        <legend>Apply the change to</legend>
        ${SCOPES.map(
          ([origin, name]) => html`<label key=${origin}><input type="radio" name="scope"
            checked=${origin === here} onChange=${() => setHere(origin)} /> ${name}</label>`,
        )}
      </fieldset>
    <//>
    <${Done} />`;
}
