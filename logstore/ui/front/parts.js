// Small parts that every page shares: times, command lines, errors, empty states.

import { html, useEffect, useState } from "./vendor/htm-preact.js";
import { formatLocalTime, formatTime, isLocalOther } from "./format.js";

const NAME = "logstore";

/** Name the page in the title of its window. */
export function useTitle(title) {
  useEffect(() => {
    document.title = title ? `${title} – ${NAME}` : NAME;
  }, [title]);
}

/** Say a sentence to screen readers, without moving the focus. */
export function announce(sentence) {
  const region = document.getElementById("announcements");
  if (region === null) return;
  // The same sentence twice is said twice only if the text changes between.
  region.textContent = "";
  requestAnimationFrame(() => {
    region.textContent = sentence;
  });
}

// -- times ---------------------------------------------------------------------------------

const zone = { name: "UTC", listeners: new Set() };

/** Which of the two ways to show times is chosen, and the function that chooses the other. */
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

/** A moment in UTC or local time, as the header's switch says; the other one on hover, or beside
 * it where `both` is asked for. */
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

// A line may end between date and time, and nowhere else.
function Halves({ text }) {
  const [date, time] = text.split(" ");
  return html`<span>${date}</span> <span>${time}</span>`;
}

// -- what a person copies ------------------------------------------------------------------

/** A command line with a button that copies it; `label` names the button for screen readers. */
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
      announce("The browser does not let this page copy. Select the line and copy it by hand.");
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

/** A word of a command line, in quotes where a shell would read something else into it. */
export function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** The option that names the directory which this page shows. */
export function directoryOption(about) {
  const directory = about?.data_dirs?.[0];
  return directory === undefined ? "" : ` --data-dir ${quoted(directory)}`;
}

// -- states of a part of the page ----------------------------------------------------------

/** An error in the server's words, with a way to try again. */
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

/** What stands where there is nothing yet: a sentence, and what to do next. */
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

/** A word with a mark, so that no state is told by its colour alone. */
export function Badge({ kind = "plain", children, title }) {
  return html`<span class=${`badge is-${kind}`} title=${title}>${children}</span>`;
}

/** A bar whose words stand beside it; `mark` is where a line crosses it. */
export function Bar({ share, kind, mark }) {
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return html`
    <span class=${`bar is-${kind}`} aria-hidden="true">
      <span class="bar-fill" style=${{ width }}></span>
      ${mark != null && mark >= 0 && mark <= 1 && html`<span class="bar-mark" style=${{ left: `${mark * 100}%` }}></span>`}
    </span>
  `;
}

/** Names and values; a fact is `[name, value, explanation]`, and one that is false is left out. */
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

/** The answer of `useAnswer`, or why it is not there; `children` draws it. */
export function Answered({ of, what, children }) {
  const { answer, error, isLoading, isStale, reload } = of;
  return html`
    ${isStale && html`
      <div class="notice">
        <p role="status">The log has changed since this was read.</p>
        <button type="button" onClick=${() => reload()} disabled=${isLoading}>Read it again</button>
      </div>
    `}
    ${error !== null && html`<${Failure} error=${error} onRetry=${reload} what=${what} />`}
    ${answer === null ? isLoading && html`<${Loading} />` : children(answer)}
  `;
}
