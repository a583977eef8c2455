// The toolbar of a virtual clock: its time, and controls to advance it.

import { html, useEffect, useRef, useState } from "./vendor/htm-preact.js";
import { postJson, subscribe } from "./api.js";
import { may } from "./actions.js";
import { useIdentity } from "./dialog.js";
import { formatDuration, formatTime } from "./format.js";
import { announce, Failure, Time } from "./parts.js";
import { parseDuration } from "./units.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Slider positions, from a second to a year. */
const STEPS = [
  1_000, 10_000, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY,
  2 * DAY, 3 * DAY, 7 * DAY, 14 * DAY, 30 * DAY, 90 * DAY, 180 * DAY, 365 * DAY,
];
const STEP_FIRST = STEPS.indexOf(HOUR);

/** The time of a broker whose clock does not move. */
export function FixedTime({ clock: { kind, now_ms: nowMs } }) {
  return kind === "fixed" && html`<span>Fixed time <${Time} ms=${nowMs} /></span>`;
}

export function ClockBar({ about, refreshAbout }) {
  const clock = useClock(about);
  const [step, setStep] = useState(STEP_FIRST);
  const [by, setBy] = useState(typedStep(STEP_FIRST));
  const [to, setTo] = useState("");
  const move = useMove(refreshAbout);
  const id = useIdentity("clock");
  if (about.clock.kind !== "virtual") return null;
  if (!may(about, "move-clock")) return html`<${Standing} nowMs=${clock.now_ms} />`;

  const slide = (event) => {
    const index = Number(event.target.value);
    setStep(index);
    setBy(typedStep(index));
  };
  const byMs = parseDuration(by);
  const submit = (request) => (event) => {
    event.preventDefault();
    if (request !== null) move.start(request, clock.now_ms);
  };
  return html`<section class="clock" aria-label="Virtual clock">
    <div class="clock-now">
      <span class="clock-name">Virtual clock</span>
      <span id=${`${id}-now`}><${Time} ms=${clock.now_ms} both=${true} /></span>
      <button type="button" class="quiet" disabled=${move.isMoving || clock.next_event_ms === null}
        aria-describedby=${`${id}-next`} onClick=${submit({ next_event: true })}>To the next event</button>
      <span class="clock-next" id=${`${id}-next`}>${nextInWords(clock)}</span>
    </div>
    <details class="clock-moves">
      <summary>Advance the clock</summary>
      <form onSubmit=${submit(byMs === null || byMs <= 0 ? null : { by_ms: byMs })}>
        <label for=${`${id}-slider`}>Forward by</label>
        <input id=${`${id}-slider`} type="range" min="0" max=${STEPS.length - 1} step="1" value=${step}
          aria-valuetext=${formatDuration(STEPS[step])} onInput=${slide} />
        <label class="unseen" for=${`${id}-by`}>Duration</label>
        <input id=${`${id}-by`} type="text" size="8" value=${by} autocomplete="off"
          aria-invalid=${byMs === null ? "true" : null} aria-describedby=${`${id}-by-hint`}
          onInput=${(event) => setBy(event.target.value)} />
        <button type="submit" disabled=${move.isMoving || byMs === null || byMs <= 0}>Move forward</button>
        <span class="hint" id=${`${id}-by-hint`}>${byMs === null
          ? "Give ms, or 7d, 12h, 5m, 30s"
          : html`to <${Time} ms=${clock.now_ms + byMs} />`}</span>
      </form>
      <form onSubmit=${submit(to === "" ? null : { to_ms: utcMs(to) })}>
        <label for=${`${id}-to`}>To a time (UTC)</label>
        <input id=${`${id}-to`} type="datetime-local" step="1" value=${to} min=${utcText(clock.now_ms)}
          onInput=${(event) => setTo(event.target.value)} />
        <button type="submit" disabled=${move.isMoving || to === ""}>Move there</button>
      </form>
    </details>
    ${move.isMoving && html`<div class="clock-progress">
      <label>Advancing the clock
        <progress max="1" value=${move.share ?? null}></progress></label>
      <button type="button" onClick=${move.stop}>Stop</button>
    </div>`}
    ${move.error && html`<${Failure} error=${move.error} />`}
  </section>`;
}

/** A read-only clock. */
function Standing({ nowMs }) {
  return html`<section class="clock" aria-label="Virtual clock">
    <div class="clock-now">
      <span class="clock-name">Virtual clock</span> <${Time} ms=${nowMs} both=${true} />
    </div>
  </section>`;
}

/** The latest state of the clock, from `about` or a later event. */
function useClock(about) {
  const [event, setEvent] = useState(null);
  useEffect(() => subscribe("clock", setEvent), []);
  useEffect(() => setEvent(null), [about]);
  return { next_event_ms: null, ...about.clock, ...event };
}

/**
 * Advances the clock. A request may return before the requested time is reached; it is then
 * repeated, unless the user stops it.
 */
function useMove(refreshAbout) {
  const [state, setState] = useState({ isMoving: false, share: null, error: null });
  const isStopped = useRef(false);
  const start = async (request, fromMs) => {
    isStopped.current = false;
    setState({ isMoving: true, share: 0, error: null });
    let error = null;
    try {
      let answer = await postJson("clock", request);
      while (!isStopped.current && !answer.is_done) {
        const share = (answer.now_ms - fromMs) / (answer.to_ms - fromMs);
        setState({ isMoving: true, share, error: null });
        answer = await postJson("clock", { to_ms: answer.to_ms });
      }
      announce(`The clock is at ${formatTime(answer.now_ms)}.`);
    } catch (failure) {
      error = failure;
    }
    setState({ isMoving: false, share: null, error });
    refreshAbout?.();
  };
  const stop = () => {
    isStopped.current = true;
  };
  return { ...state, start, stop };
}

function nextInWords({ now_ms: nowMs, next_event_ms: nextMs, next_event: name }) {
  if (nextMs === null) return "No events are scheduled.";
  return `Next: ${name}, ${nextMs > nowMs ? `in ${formatDuration(nextMs - nowMs)}` : "now"}`;
}

function typedStep(index) {
  return formatDuration(STEPS[index], 1);
}

// The date and time field has no time zone. Treat it as UTC.
function utcMs(text) {
  return Date.parse(`${text}Z`);
}

function utcText(ms) {
  return new Date(ms).toISOString().slice(0, 19);
}
