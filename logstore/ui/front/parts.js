// Shared components: times, command lines, errors, empty states.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { formatLocalTime, formatTime, isLocalOther } from "./format.js";

const NAME = "logstore";

/** Set the window's title. */
export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} – ${NAME}` : NAME;
  }, [title]);
}

/** Announce a sentence to screen readers, without moving the focus. */
export function announce(sentence) {
  const region = document.getElementById("announcements");
  if (region === null) return;
  // Screen readers repeat a sentence only if the text changes in between.
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = sentence;
  });
}

// -- times ---------------------------------------------------------------------------------

const zone = { name: "UTC", listeners: new Set() };

/** The time zone in use (UTC or local), and a function to switch it. */
export function useZone() {
  const [name, setName] = useState(zone.name);
  useEffect(() => {
    zone.listeners.add(setName);
    return () => zone.listeners.delete(setName);
  }, []);
  const toggle = () => {
    zone.name = zone.name === "UTC" ? "local" : "UTC";
    for (const listener of zone.listeners) listener(zone.name);
  };
  return [name, toggle];
}

/** A time in the zone chosen in the header; the other zone on hover, or next to it with `both`. */
export function Time({ ms, both = false }) {
  const [chosen] = useZone();
  if (ms == null || ms < 0) return html`<span class="none">–</span>`;
  const isSameDay = formatLocalTime(ms).slice(0, 10) === formatTime(ms).slice(0, 10);
  const texts = { UTC: formatTime(ms), local: formatLocalTime(ms) };
  const other = chosen === "UTC" ? "local" : "UTC";
  const stamp = texts.UTC.replace(" ", "T");
  return html`<time class="time" datetime=${stamp} title=${`${texts[other]} ${other === "UTC" ? "(UTC)" : "(local)"}`}
    ><${Halves} text=${texts[chosen]} />${both && isLocalOther(ms) && html`<span class="time-other">${isSameDay ? texts[other].slice(11) : html`<${Halves} text=${texts[other]} />`} ${other === "local" && "here"}</span>`}</time
  >`;
}

// A line may break only between date and time.
function Halves({ text }) {
  const [date, time] = text.split(" ");
  return html`<span>${date}</span> <span>${time}</span>`;
}

// -- command lines to copy -----------------------------------------------------------------

/** A command line with a copy button; `label` names the button for screen readers. */
export function Command({ line, label = "Copy this command line" }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line);
      setCopied(true);
      announce("Copied.");
    } catch {
      announce("The browser does not allow copying. Select the line and copy it manually.");
    }
  };
  return html`
    <div class="command">
      <code>${line}</code>
      <button type="button" class="quiet" onClick=${copy} aria-label=${label}>
        ${isCopied ? "Copied" : "Copy"}
      </button>
    </div>
  `;
}

/** A word of a command line, quoted for the shell if necessary. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The option that names the page's data directory. */
export function directoryOption(about) {
  const directory = about?.data_dirs?.[0];
  return directory === undefined ? "" : ` --data-dir ${quoted(directory)}`;
}

// -- states of a component -----------------------------------------------------------------

/** An error message, with a button to retry. */
export function Failure({ error, onRetry, what }) {
  return html`
    <div class="notice is-bad" role="alert">
      <p>
        <strong>${what ? `${what}: ` : ""}${error.type ?? "Error"}</strong>
        ${" "}${ended(error.message)}
        ${error.suggestion && html` Did you mean <code>${error.suggestion}</code>?`}
      </p>
      ${onRetry && html`<button type="button" onClick=${() => onRetry()}>Try again</button>`}
    </div>
  `;
}

function ended(sentence) {
  return /[.?!)]$/.test(sentence) ? sentence : `${sentence}.`;
}

/** An empty state: a sentence, and what to do next. */
export function Empty({ children, line }) {
  return html`
    <div class="empty">
      <p>${children}</p>
      ${line && html`<${Command} line=${line} />`}
    </div>
  `;
}

export function Loading({ what = "Loading" }) {
  return html`<p class="loading" role="status">${what}…</p>`;
}

/** A word with a symbol, so that the state does not depend on colour alone. */
export function Badge({ kind = "plain", children, title }) {
  return html`<span class=${`badge is-${kind}`} title=${title}>${children}</span>`;
}

/** A bar with its text next to it; `mark` is the position of a line across it. */
export function Bar({ share, kind, mark }) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return html`
    <span class=${`bar is-${kind}`} aria-hidden="true">
      <span class="bar-fill" style=${{ width }}></span>
      ${mark != null && mark >= 0 && mark <= 1 && html`<span class="bar-mark" style=${{ left: `${mark * 100}%` }}></span>`}
    </span>
  `;
}

/** A setting that limits a value, as `min.cleanable.dirty.ratio = 0.5`. */
export function Setting({ name, value }) {
  const parts = name.split(/(?<=\.)/).flatMap((part) => [part, html`<wbr />`]);
  return html`<span class="explanation">${parts} = ${value}</span>`;
}

/** Names and values; a fact is `[name, value, explanation]`, or false to omit it. */
export function Facts({ facts }) {
  return html`
    <dl class="facts">
      ${facts.filter(Boolean).map(
        ([name, value, explanation]) => html`
          <div key=${name} class="fact">
            <dt>${name}</dt>
            <dd>${value}${explanation && html`<span class="explanation">${explanation}</span>`}</dd>
          </div>
        `,
      )}
    </dl>
  `;
}

/** The answer of `useAnswer`, or its loading or error state; `children` renders it. */
export function Requested({ of, what, children }) {
  const { answer, error, isLoading, isStale, reload } = of;
  return html`
    ${isStale && html`
      <div class="notice">
        <p role="status">The log has changed since it was read.</p>
        <button type="button" onClick=${() => reload()} disabled=${isLoading}>Read it again</button>
      </div>
    `}
    ${error !== null && html`<${Failure} error=${error} onRetry=${reload} what=${what} />`}
    ${answer === null ? isLoading && html`<${Loading} />` : children(answer)}
  `;
}

/** A small table that scrolls horizontally if necessary; with `folds`, each row is one line, cut off
 * at its end. `numbers` lists the numeric columns. */
export function Rows({ label, headings, numbers = [], folds = false, stacks = false, children }) {
  return html`
    <div class=${`rows${folds ? " is-folding" : ""}${stacks ? " is-stacking" : ""}`} role="region" aria-label=${label} tabindex="0">
      <table>
        <thead>
          <tr>${headings.map((heading) => html`<th key=${heading} scope="col" class=${numbers.includes(heading) ? "is-number" : ""}>${heading}</th>`)}</tr>
        </thead>
        <tbody>${children}</tbody>
      </table>
    </div>
  `;
}
