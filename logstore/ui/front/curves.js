// Small charts of values over time, each with a table of its values.

import { html, useEffect, useMemo, useRef, useState } from "./vendor/htm-preact.js";
import { formatBytes, formatDuration, formatRatio, formatShort, formatTime } from "./format.js";

const WIDTH = 280;
const HEIGHT = 64;
const PAD = 4;
const TABLE_ROWS = 12;

const FORMATS = { bytes: formatBytes, ms: (ms) => formatDuration(ms), ratio: formatRatio, percent: (share) => `${formatShort(share)} %` };

function formatOf(unit) {
  return FORMATS[unit] ?? ((value) => `${formatShort(value)}${unit && unit !== "count" ? ` ${unit}` : ""}`);
}

/** A chart of `points` `[ms, value]`, oldest first. Arrow keys move between points. */
export function Curve({ title, unit, points }) {
  const [at, setAt] = useState(null);
  const svg = useRef(null);
  const format = formatOf(unit);
  const shape = useMemo(() => shapeOf(points), [points]);
  useEffect(() => setAt((before) => (before !== null && before >= points.length ? null : before)), [points]);
  const last = points.at(-1);
  if (last === undefined) return null;
  const chosen = at === null ? null : points[at];
  const [low, high] = shape.bounds;
  const pick = (event) => {
    const box = svg.current.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * WIDTH;
    setAt(nearest(shape.places, x));
  };
  const onKeyDown = (event) => {
    const here = at ?? points.length - 1;
    const moves = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: points.length - 1 };
    if (!(event.key in moves)) return;
    event.preventDefault();
    setAt(Math.max(0, Math.min(points.length - 1, moves[event.key])));
  };
  const [pointMs, value] = chosen ?? last;
  return html`
    <figure class="curve">
      <figcaption>
        <span class="curve-title">${title}</span>
        <span class="curve-value">${format(value)}</span>
      </figcaption>
      <svg
        ref=${svg}
        viewBox=${`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="slider"
        tabindex="0"
        aria-label=${`${title}, from ${format(low)} to ${format(high)}`}
        aria-valuemin="0"
        aria-valuemax=${points.length - 1}
        aria-valuenow=${at ?? points.length - 1}
        aria-valuetext=${`${format(value)} at ${formatTime(pointMs)}`}
        aria-readonly="true"
        onMouseMove=${pick}
        onMouseLeave=${() => setAt(null)}
        onKeyDown=${onKeyDown}
        onBlur=${() => setAt(null)}
      >
        <path class="curve-area" d=${`${shape.line}L${WIDTH - PAD} ${HEIGHT}L${PAD} ${HEIGHT}Z`} />
        <path class="curve-line" d=${shape.line} />
        ${chosen !== null && html`<line class="curve-cursor" x1=${shape.places[at]} x2=${shape.places[at]} y1="0" y2=${HEIGHT} />`}
      </svg>
      <div class="curve-range">
        <span>${format(low)} to ${format(high)}</span>
        <time>${formatTime(pointMs).slice(0, 19)}Z</time>
      </div>
      <details>
        <summary>Numbers<span class="unseen"> of ${title}</span></summary>
        <table>
          <thead><tr><th scope="col">Time (UTC)</th><th scope="col">${title}</th></tr></thead>
          <tbody>
            ${points.slice(-TABLE_ROWS).reverse().map(([ms, each]) => html`<tr key=${ms}><td>${formatTime(ms)}</td><td>${format(each)}</td></tr>`)}
          </tbody>
        </table>
      </details>
    </figure>
  `;
}

/** Several charts; `series` is as in `/api/history`, `{unit, points}` by name. */
export function Curves({ series, titles = {} }) {
  const names = Object.keys(series).filter((name) => series[name].points.length > 0);
  return html`
    <div class="curves">
      ${names.map((name) => html`
        <${Curve} key=${name} title=${titles[name] ?? series[name].title ?? name.replaceAll(/[-_]/g, " ")} unit=${series[name].unit} points=${series[name].points} />
      `)}
    </div>
  `;
}

function shapeOf(points) {
  const values = points.map(([, value]) => value);
  const low = Math.min(...values);
  const high = Math.max(...values);
  const [from] = points[0] ?? [0];
  const [to] = points.at(-1) ?? [0];
  const across = (ms) => PAD + (to === from ? 1 : (ms - from) / (to - from)) * (WIDTH - 2 * PAD);
  const up = (value) => HEIGHT - PAD - (high === low ? 0.5 : (value - low) / (high - low)) * (HEIGHT - 2 * PAD);
  const places = points.map(([ms]) => across(ms));
  let line = points.map(([, value], index) => `${index === 0 ? "M" : "L"}${places[index].toFixed(1)} ${up(value).toFixed(1)}`).join("");
  // Draw a single point as a line.
  if (points.length === 1) line = `M${PAD} ${up(values[0])}H${WIDTH - PAD}`;
  return { line, places, bounds: [low, high] };
}

function nearest(places, x) {
  let best = 0;
  places.forEach((place, index) => {
    if (Math.abs(place - x) < Math.abs(places[best] - x)) best = index;
  });
  return best;
}
