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

/** Announce a sentence to screen readers. */
export function announce(sentence) {
  const region = document.getElementById("announcements");
  if (region === null) return;
  // Screen readers announce the same text again only if it changed in between.
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = sentence;
  });
}

// -- times ---------------------------------------------------------------------------------

const zone = { name: "UTC", listeners: new Set() };

/** Hook: the selected time zone (UTC or local), and a function to change it. */
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

/** A time in the selected zone. The other zone is shown on hover, or always with `both`. */
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

// Allow a line break only between date and time.
function Halves({ text }) {
  const [date, time] = text.split(" ");
  return html`<span>${date}</span> <span>${time}</span>`;
}

// -- command lines -------------------------------------------------------------------------

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

/** Quote a word for the shell if necessary. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The option for the data directory of the page. */
export function directoryOption(about) {
  const directory = about?.data_dirs?.[0];
  return directory === undefined ? "" : ` --data-dir ${quoted(directory)}`;
}

// -- states --------------------------------------------------------------------------------

/** An error message with a retry button. */
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

/** An empty state: a sentence, and the next step. */
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

/** A word with a symbol, since colour alone is not accessible. */
export function Badge({ kind = "plain", children, title }) {
  return html`<span class=${`badge is-${kind}`} title=${title}>${children}</span>`;
}

/** A labelled bar, with a line across it at `mark`. */
export function Bar({ share, kind, mark }) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return html`
    <span class=${`bar is-${kind}`} aria-hidden="true">
      <span class="bar-fill" style=${{ width }}></span>
      ${mark != null && mark >= 0 && mark <= 1 && html`<span class="bar-mark" style=${{ left: `${mark * 100}%` }}></span>`}
    </span>
  `;
}

/** A list of facts `[name, value, explanation]`; false items are omitted. */
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

/** Renders an answer of `useAnswer` with `children`, or its loading or error state. */
export function Requested({ of, what, children }) {
  const { answer, error, isLoading, isStale, reload } = of;
  return html`
    ${isStale && html`
      <div class="notice">
        <p role="status">The log has changed since then.</p>
        <button type="button" onClick=${() => reload()} disabled=${isLoading}>Reload</button>
      </div>
    `}
    ${error !== null && html`<${Failure} error=${error} onRetry=${reload} what=${what} />`}
    ${answer === null ? isLoading && html`<${Loading} />` : children(answer)}
  `;
}

/** A small table that scrolls horizontally if necessary. `numbers` lists numeric columns; `folds`
 * truncates each row to one line. */
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
