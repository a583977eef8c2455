// The broker's settings: those that may change while it runs are fields, the others are shown.

import { html, useState } from "./vendor/htm-preact.js";
import { Done, may, ReadOnlyNote } from "./deeds.js";
import { Facts, Time, useTitle } from "./parts.js";
import { SettingsForm } from "./settings.js";

/** Groups of keys by what they are about; a key of none is in the last. */
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
    "Cleanup of topics that say nothing of their own",
    [
      "log.cleanup.policy", "log.retention.ms", "log.retention.minutes", "log.retention.hours",
      "log.retention.bytes", "log.retention.check.interval.ms", "log.segment.delete.delay.ms",
      "log.cleaner.min.cleanable.ratio", "log.cleaner.min.compaction.lag.ms",
      "log.cleaner.max.compaction.lag.ms", "log.cleaner.delete.retention.ms",
      "log.cleaner.compaction.strategy", "log.cleaner.compaction.strategy.header",
    ],
  ],
  [
    "Segments of topics that say nothing of their own",
    [
      "log.segment.bytes", "log.roll.ms", "log.roll.hours", "log.roll.jitter.ms",
      "log.roll.jitter.hours", "log.index.size.max.bytes", "log.index.interval.bytes",
      "log.preallocate",
    ],
  ],
  ["Everything else", []],
];

/** For whom a setting is changed: where it is kept, and the origin of values set so. */
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
      They hold for every topic that says nothing of its own. Those that can be changed while the broker
      runs are fields; the others stand in its file.
    </p>
    <${SettingsForm} path="broker/configs" groups=${GROUPS} here=${here} scope=${scope}
      mayAlter=${may(about, "alter-broker-configs")}>
      <fieldset class="choices">
        <legend>Change it for</legend>
        ${SCOPES.map(
          ([origin, name]) => html`<label key=${origin}><input type="radio" name="scope"
            checked=${origin === here} onChange=${() => setHere(origin)} /> ${name}</label>`,
        )}
      </fieldset>
    <//>
    <${Done} />`;
}
