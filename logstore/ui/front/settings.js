// The settings form of a topic or broker, with a preview of changes.

import { html, useState } from "./vendor/htm-preact.js";
import { path as pathOf, useAnswer } from "./api.js";
import { Done, Loss, may, ReadOnlyNote, usePerformance } from "./actions.js";
import { Dialog, useIdentity } from "./dialog.js";
import { plural } from "./format.js";
import { Badge, Failure, Loading, useTitle } from "./parts.js";
import { hashOf } from "./routes.js";
import { Preview, usePreview } from "./preview.js";
import { exactly, typed } from "./units.js";

/** Groups of keys. The last group has all other keys. */
const GROUPS = [
  ["Cleanup policy", ["cleanup.policy"]],
  ["Delete: by age and size", ["retention.ms", "retention.bytes", "file.delete.delay.ms"]],
  [
    "Compact: when",
    ["min.cleanable.dirty.ratio", "min.compaction.lag.ms", "max.compaction.lag.ms", "delete.retention.ms"],
  ],
  [
    "Compact: which record of a key survives",
    [
      "compaction.strategy",
      "compaction.strategy.header",
      "logstore.compaction.strategy.header.encoding",
    ],
  ],
  [
    "Segments",
    [
      "segment.bytes", "segment.ms", "segment.jitter.ms", "segment.index.bytes",
      "index.interval.bytes", "preallocate",
    ],
  ],
  ["Everything else", []],
];

const DEFAULT = "default";

/** Labels of value origins. */
const ORIGINS = {
  topic: "set for this topic",
  "dynamic broker": "set for the broker at run time",
  "dynamic default": "set for all brokers of the cluster",
  broker: "from the broker's configuration file",
  default: "the default",
};

export function Page({ params, about }) {
  const { topic } = params;
  useTitle(`Settings of ${topic}`);
  return html`<nav class="crumbs" aria-label="Above this page">
      <a href=${hashOf()}>Partitions</a>
      <span aria-hidden="true">/</span>
      <a href=${hashOf(["t", topic])}>${topic}</a>
    </nav>
    <h1>Settings of ${topic}</h1>
    <p class="summary">
      Nothing is changed while you type. The effect of the changes is shown next to the fields.
    </p>
    <${ReadOnlyNote} about=${about} />
    <${SettingsForm} path=${pathOf("topics", topic, "configs")} topic=${topic} groups=${GROUPS}
      here="topic" mayAlter=${may(about, "alter-configs")} />
    <${Done} topic=${topic} />`;
}

/**
 * The settings of a topic or broker, and pending changes.
 *
 * `topic` is null for the broker. Values with the origin `here` can be unset. `scope` is sent with
 * every change, and `children` are rendered next to the changes.
 */
export function SettingsForm({ path, topic = null, groups, here, mayAlter, scope = {}, children }) {
  const { answer, error: failure, reload } = useAnswer(path);
  const [draft, setDraft] = useState(NOTHING);
  const [search, setSearch] = useState("");
  const judgement = usePreview(isEmpty(draft) ? null : { topic, ...scope, ...draft });
  const performance = usePerformance({
    path,
    describe: () => `${topic ?? "The broker"}: ${draftInWords(draft)}.`,
    topic,
    links: [topic === null ? ["#/cleaner", "Show the cleaner"] : [hashOf(["t", topic]), `Show ${topic}`]],
    onDone: () => {
      setDraft(NOTHING);
      reload();
    },
  });

  if (answer === null) {
    return failure ? html`<${Failure} error=${failure} onRetry=${reload} />` : html`<${Loading} />`;
  }
  const items = answer.configs;
  const error = performance.error ?? judgement.error;
  // Preview again if a rejected draft changes.
  const edit = (change) => {
    performance.cancel();
    setDraft(change);
  };
  const edits = {
    change: (key, text) => edit((before) => withText(before, items, key, text)),
    set: (key, text) => edit((before) => withSet(before, key, text)),
    unset: (key) => edit((before) => withUnset(before, key)),
    restore: (key) => edit((before) => without(before, key)),
  };
  const found = searched(items, search);
  return html`<div class="settings">
    <div class="settings-fields">
      <${Search} text=${search} onInput=${setSearch} found=${found.length} all=${items.length} />
      ${found.length === 0 &&
      html`<${Nearest} topic=${topic} text=${search} onChoose=${setSearch} />`}
      <div class="settings-groups">${grouped(found, groups).map(
        ([title, members]) => html`<section key=${title} class="settings-group" aria-label=${title}>
          <h2>${title}</h2>
          ${members.map(
            (item) => html`<${Setting} key=${item.key} item=${item} draft=${draft} here=${here}
              error=${error?.field === item.key ? error : null} ...${edits} />`,
          )}
        </section>`,
      )}</div>
      <${ByName} onAdd=${edits.set} />
    </div>
    <div class="settings-side">
      <${Changes} items=${items} draft=${draft} error=${error} mayAlter=${mayAlter}
        performance=${performance} onSet=${() => performance.perform({ ...scope, ...draft })}
        onDiscard=${() => edit(() => NOTHING)} ...${edits}>${children}<//>
      <${Preview} judgement=${judgement} />
    </div>
  </div>`;
}

// -- drafts --------------------------------------------------------------------------------

/** Pending changes: texts by key, and keys to unset. */
const NOTHING = { set: {}, unset: [] };

function isEmpty(draft) {
  return Object.keys(draft.set).length === 0 && draft.unset.length === 0;
}

function without({ set, unset }, key) {
  const { [key]: _, ...others } = set;
  return { set: others, unset: unset.filter((each) => each !== key) };
}

function withSet(draft, key, text) {
  const rest = without(draft, key);
  return { ...rest, set: { ...rest.set, [key]: text } };
}

// Typing the current value discards the pending change.
function withText(draft, items, key, text) {
  const item = items.find((each) => each.key === key);
  const same = text === item.value || text === typed(item.value, item.unit);
  return same ? without(draft, key) : withSet(draft, key, text);
}

function withUnset(draft, key) {
  const rest = without(draft, key);
  return { ...rest, unset: [...rest.unset, key] };
}

function draftInWords({ set, unset }) {
  return [
    ...Object.entries(set).map(([key, text]) => `${key} set to ${text || "nothing"}`),
    ...unset.map((key) => `${key} unset`),
  ].join(", ");
}

/** The layer that applies once the value set here is unset. */
function below(item, here) {
  const layer = (item.layers ?? []).find((each) => each.origin !== here);
  return layer === undefined || layer.origin === DEFAULT
    ? { key: item.key, value: item.default, origin: DEFAULT }
    : layer;
}

/** The value of a layer as typed in the field. A different key may have a different unit. */
function layerInWords(layer, item) {
  if (layer.value === "") return "nothing";
  return layer.key === item.key ? typed(layer.value, item.unit) : `${layer.key} = ${layer.value}`;
}

// -- one setting ---------------------------------------------------------------------------

function Setting({ item, draft, here, error, change, unset, restore }) {
  const id = useIdentity("setting");
  const isUnset = draft.unset.includes(item.key);
  const isChanged = isUnset || item.key in draft.set;
  const inherited = below(item, here);
  const text = isUnset
    ? unsetText(item, inherited)
    : (draft.set[item.key] ?? typed(item.value, item.unit));
  const described = `${id}-error ${id}-exact ${id}-origin ${id}-meaning`;
  const common = { id, item, text, described, invalid: error !== null, change };
  return html`<div class=${`setting ${isChanged ? "is-changed" : ""} ${item.origin === here ? "is-own" : ""}`}>
    <div class="setting-name">
      ${isList(item) || item.read_only
        ? html`<span class="setting-key" id=${`${id}-label`}>${item.key}</span>`
        : html`<label class="setting-key" for=${id}>${item.key}</label>`}
      ${isChanged
        ? html`<${Badge} kind="changed">pending change<//>`
        : item.origin === here && html`<${Badge}>set here<//>`}
      <p class="setting-words" id=${`${id}-meaning`}>${item.documentation} <span class="range">(${item.range})</span></p>
      <p class="setting-origin" id=${`${id}-origin`}>${originInWords(item, here, isUnset, inherited)}</p>
    </div>
    <div class="setting-value">
      <${Input} ...${common} />
      <span class="exact" id=${`${id}-exact`}>${exactly(text, item.unit)}</span>
      ${item.origin === here && !item.read_only && !isUnset &&
      html`<button type="button" class="quiet" onClick=${() => unset(item.key)}>Unset
        <span class="unseen"> ${item.key}</span></button>`}
      ${isChanged &&
      html`<button type="button" class="quiet" onClick=${() => restore(item.key)}>Undo
        <span class="unseen"> ${item.key}</span></button>`}
      <p class="error" id=${`${id}-error`}>${error?.message}
        ${error?.suggestion && html`${" "}<button type="button" class="quiet"
          onClick=${() => change(item.key, error.suggestion)}>Use ${error.suggestion}</button>`}</p>
    </div>
  </div>`;
}

// Leave the field empty if the next layer has a different unit, such as log.retention.hours.
function unsetText(item, inherited) {
  const isSame = inherited.key === item.key || item.unit === null;
  return isSame ? typed(inherited.value, item.unit) : "";
}

function isList(item) {
  return item.kind === "list" && item.choices?.length > 0;
}

function Input({ id, item, text, described, invalid, change }) {
  if (item.read_only) return html`<code id=${id}>${text || "nothing"}</code>`;
  const attributes = {
    id,
    "aria-describedby": described,
    "aria-invalid": invalid ? "true" : null,
  };
  const choices = item.kind === "boolean" ? ["true", "false"] : item.choices;
  if (isList(item)) {
    const chosen = text.split(",").map((each) => each.trim()).filter(Boolean);
    const toggle = (choice) =>
      change(
        item.key,
        item.choices
          .filter((each) => (each === choice ? !chosen.includes(each) : chosen.includes(each)))
          .join(","),
      );
    return html`<div role="group" class="choices" id=${id} aria-labelledby=${`${id}-label`}
      aria-describedby=${described}>
      ${item.choices.map(
        (choice) => html`<label key=${choice}><input type="checkbox"
          checked=${chosen.includes(choice)} onChange=${() => toggle(choice)} /> ${choice}</label>`,
      )}
    </div>`;
  }
  if (choices?.length > 0) {
    return html`<select ...${attributes} value=${text}
      onChange=${(event) => change(item.key, event.target.value)}>
      ${[...new Set([...choices, text])].map(
        (choice) => html`<option key=${choice} value=${choice} selected=${choice === text}>${choice}</option>`,
      )}
    </select>`;
  }
  return html`<input ...${attributes} type="text" value=${text} autocomplete="off" spellcheck=${false}
    onInput=${(event) => change(item.key, event.target.value)} />`;
}

function originInWords(item, here, isUnset, inherited) {
  const standard = typed(item.default, item.unit) || "nothing";
  const other = layerInWords(inherited, item);
  if (isUnset) return `When unset: ${other}, ${ORIGINS[inherited.origin]}.`;
  const where = ORIGINS[item.origin];
  if (item.origin === here) {
    return inherited.origin === DEFAULT
      ? `This is ${where}. When unset: the default, ${standard}.`
      : `This is ${where}. When unset: ${other}, ${ORIGINS[inherited.origin]}. The default is ${standard}.`;
  }
  if (item.origin === DEFAULT) return "This is the default.";
  return `This is ${where}: ${other}. The default is ${standard}.`;
}

// -- search --------------------------------------------------------------------------------

function Search({ text, onInput, found, all }) {
  const id = useIdentity("search");
  return html`<div class="field search" role="search">
    <label for=${id}>Search the settings</label>
    <input id=${id} type="search" value=${text} onInput=${(event) => onInput(event.target.value)}
      autocomplete="off" spellcheck=${false} />
    <span role="status">${text ? `${found} of ${all}` : plural(all, "setting")}</span>
  </div>`;
}

/** Settings whose name or description contains all words of a text. */
function searched(items, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return items.filter((item) => {
    const all = `${item.key} ${item.documentation}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

function grouped(items, groups) {
  const named = new Set(groups.flatMap(([, keys]) => keys));
  return groups
    .map(([title, keys]) => [
      title,
      keys.length > 0
        ? keys.map((key) => items.find((item) => item.key === key)).filter(Boolean)
        : items.filter((item) => !named.has(item.key)),
    ])
    .filter(([, members]) => members.length > 0);
}

/** The server's suggestion for an unknown key. */
function Nearest({ topic, text, onChoose }) {
  const judgement = usePreview({ topic, set: { [text.trim()]: "" }, unset: [] });
  const suggestion = judgement.error?.suggestion;
  return html`<p role="status">
    No setting contains “${text}” in its name or description.${" "}
    ${suggestion && html`Did you mean <button type="button" class="quiet"
      onClick=${() => onChoose(suggestion)}>${suggestion}</button>?`}
  </p>`;
}

/** A field to add a setting as key=value. */
function ByName({ onAdd }) {
  const id = useIdentity("by-name");
  const [text, setText] = useState("");
  const match = /^\s*([^=\s]+)\s*=\s*(.*?)\s*$/.exec(text);
  const add = (event) => {
    event.preventDefault();
    if (match === null) return;
    onAdd(match[1], match[2]);
    setText("");
  };
  return html`<form class="by-name field" onSubmit=${add}>
    <label for=${id}>Change a setting by its name</label>
    <input id=${id} type="text" value=${text} placeholder="key=value" autocomplete="off"
      spellcheck=${false} onInput=${(event) => setText(event.target.value)}
      aria-describedby=${`${id}-hint`} />
    <button type="submit" disabled=${match === null}>Add to the changes</button>
    <p class="hint" id=${`${id}-hint`}>For example
      retention.ms=7d. Deprecated names of Kafka are accepted.</p>
  </form>`;
}

// -- changes -------------------------------------------------------------------------------

function Changes({ items, draft, error, mayAlter, performance, onSet, onDiscard, set, restore, children }) {
  const changes = [...Object.keys(draft.set), ...draft.unset];
  const count = changes.length;
  const rename = (key, suggestion) => {
    const text = draft.set[key];
    restore(key);
    set(suggestion, text);
  };
  return html`<section class="changes" aria-label="Pending changes">
    <h2>Pending changes</h2>
    <p role="status">${count === 0 ? "None." : `${plural(count, "change")}.`}</p>
    <ul>
      ${changes.map((key) => {
        const item = items.find((each) => each.key === key);
        const isKnown = item !== undefined;
        const failed = error?.field === key ? error : null;
        return html`<li key=${key}>
          <code>${key}</code>${" "}
          ${isKnown && html`<span class="was">${typed(item.value, item.unit) || "nothing"}</span> → `}
          <strong>${key in draft.set ? draft.set[key] || "nothing" : "unset"}</strong>
          ${" "}<button type="button" class="quiet" onClick=${() => restore(key)}>Undo
            <span class="unseen"> the change of ${key}</span></button>
          ${failed && html`<p class="error" role="alert">${failed.message}${" "}
            ${failed.suggestion && !isKnown && html`<button type="button" class="quiet"
              onClick=${() => rename(key, failed.suggestion)}>Use ${failed.suggestion}</button>`}</p>`}
        </li>`;
      })}
    </ul>
    ${error && !changes.includes(error.field) && html`<${Failure} error=${error} />`}
    ${mayAlter && html`${children}<p class="buttons">
      <button type="button" class="primary" disabled=${count === 0 || performance.busy}
        onClick=${onSet}>${count === 0 ? "Set the changes" : `Set ${plural(count, "change")}`}</button>
      <button type="button" disabled=${count === 0} onClick=${onDiscard}>Discard</button>
    </p>`}
    ${performance.loss && html`<${Dialog} title=${`Set ${plural(count, "change")}?`} onClose=${performance.cancel}>
      <${Loss} loses=${performance.loss.loses} />
      <p class="buttons">
        <button type="button" class="danger" onClick=${onSet}>Set anyway</button>
        <button type="button" onClick=${performance.cancel}>Cancel</button>
      </p>
    <//>`}
  </section>`;
}
