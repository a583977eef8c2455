// The segment map of a partition. The width of a bar shows the size of its segment, and its height
// the occupancy.
//
// `SegmentMap` renders data; `PartitionMap` requests it.

import {
  html,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/htm-preact.js";
import { path, useAnswer, withQuery } from "./api.js";
import { formatBytes, formatCount, plural } from "./format.js";
import { Empty, Failure, Loading, Time } from "./parts.js";

const BAR_TOP = 26;
const BAR_HEIGHT = 76;
const MARKS_TOP = BAR_TOP + BAR_HEIGHT + 4;
const HEIGHT = MARKS_TOP + 14;
const BAR_WIDTH_MIN = 7;
const GAP = 1;
const FILL_MIN = 0.06;
const CHARACTER_WIDTH = 7;

/** Labels of log sections. */
export const SECTIONS = {
  clean: "cleaned; one record per key",
  dirty: "written since the last cleaning pass",
  uncleanable: "dirty, but not cleanable yet",
  active: "the active segment, which receives appends",
  deleted: "removed from the log; its file awaits deletion",
};

let instances = 0;

export function sectionOf(bucket) {
  return bucket.deleted ? "deleted" : bucket.section;
}

/** Describe a bucket, for the accessible name of its bar. */
export function describe(bucket) {
  const parts = [
    bucket.segments > 1
      ? `${formatCount(bucket.segments)} segments, offsets ${formatCount(bucket.base_offset)} to ${formatCount(bucket.last_offset)}`
      : `Segment ${formatCount(bucket.base_offset)}`,
    sectionOf(bucket),
    formatBytes(bucket.size_bytes),
  ];
  if (bucket.records != null) parts.push(plural(bucket.records, "record"));
  if (bucket.holes > 0) parts.push(`${plural(bucket.holes, "offset")} without a record`);
  if (bucket.tombstones > 0) parts.push(plural(bucket.tombstones, "tombstone"));
  else if (bucket.delete_horizon_ms != null) parts.push("has a delete horizon");
  if (bucket.error != null) parts.push(`damaged: ${bucket.error}`);
  return parts.join(", ");
}

/**
 * Bars for segments, or for merged adjacent segments.
 *
 * `buckets` are as in the API, and `selected` is the index of the first segment of the selected
 * bucket, or null. Without `onSelect(bucket)`, the bars are not buttons.
 */
export function SegmentMap({ buckets, label, selected = null, onSelect, onKey }) {
  const root = useRef(null);
  const id = useRef(null);
  id.current ??= `map${(instances += 1)}`;
  const [{ width, scale }, setSize] = useState({ width: 0, scale: 1 });
  const [current, setCurrent] = useState(0);
  const [shown, setShown] = useState(null);
  const wantsFocus = useRef(false);

  useLayoutEffect(() => {
    const measure = () => {
      // Scale with the font size of the page.
      const scale = parseFloat(getComputedStyle(document.documentElement).fontSize) / 16;
      setSize({ width: Math.floor(root.current.clientWidth / scale), scale });
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(root.current);
    return () => observer.disconnect();
  }, []);
  const hadFocus = root.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    // The focused bar may have been merged with others; keep the focus at its position.
    const isLost = hadFocus && !root.current.contains(document.activeElement);
    if (!wantsFocus.current && !isLost) return;
    wantsFocus.current = false;
    root.current.querySelector('[tabindex="0"]')?.focus();
  });

  const bars = useMemo(() => layOut(buckets, width), [buckets, width]);
  const runs = useMemo(() => runsOf(buckets, bars), [buckets, bars]);
  const at = Math.min(current, buckets.length - 1);
  const detail = buckets.find((bucket) => bucket.first === (shown ?? selected)) ?? null;

  const go = (index) => {
    wantsFocus.current = true;
    setCurrent(Math.max(0, Math.min(buckets.length - 1, index)));
  };
  const onKeyDown = (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const moves = {
      ArrowRight: at + 1,
      ArrowLeft: at - 1,
      PageDown: at + 10,
      PageUp: at - 10,
      Home: 0,
      End: buckets.length - 1,
    };
    if (event.key in moves) go(moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") event.target.dispatchEvent(new MouseEvent("click", { bubbles: true }));
    else if (!onKey?.(event.key, buckets[at])) return;
    event.preventDefault();
  };

  return html`
    <div class="segment-map" ref=${root}>
      <svg
        width=${width * scale}
        height=${HEIGHT * scale}
        viewBox=${`0 0 ${Math.max(width, 1)} ${HEIGHT}`}
        role=${onSelect ? "toolbar" : "img"}
        aria-label=${onSelect ? label : `${label}: ${runs.map(runText).join("; ")}`}
        onKeyDown=${onSelect ? onKeyDown : undefined}
        onMouseLeave=${() => setShown(null)}
      >
        <${Patterns} id=${id.current} />
        ${runs.map((run) => html`<${Run} key=${`run ${run.from}`} run=${run} />`)}
        ${bars.map((bar, index) => {
          const bucket = buckets[index];
          return html`
            <${Bar}
              key=${bucket.first ?? bucket.base_offset}
              bucket=${bucket}
              bar=${bar}
              id=${id.current}
              isCurrent=${index === at}
              isSelected=${selected !== null && bucket.first === selected}
              onSelect=${onSelect && (() => (setCurrent(bucket.segments > 1 ? 0 : index), onSelect(bucket)))}
              onShow=${() => setShown(bucket.first)}
              onFocus=${() => (setCurrent(index), setShown(bucket.first))}
              onBlur=${() => setShown(null)}
            />
          `;
        })}
      </svg>
      <p class="segment-map-detail">
        ${detail === null
          ? html`<span class="dim">${onSelect ? "Point at a bar, or select one with the arrow keys. Enter opens it." : " "}</span>`
          : html`${describe(detail)}${detail.max_timestamp >= 0 && html`, latest <${Time} ms=${detail.max_timestamp} />`}`}
      </p>
    </div>
  `;
}

function Bar({ bucket, bar, id, isCurrent, isSelected, onSelect, onShow, onFocus, onBlur }) {
  const section = sectionOf(bucket);
  const fill = fillOf(bucket);
  const height = Math.max(BAR_HEIGHT * fill, 2);
  const top = BAR_TOP + BAR_HEIGHT - height;
  const middle = bar.x + bar.width / 2;
  const button = onSelect && {
    role: "button",
    tabindex: isCurrent ? 0 : -1,
    "aria-label": describe(bucket),
    "aria-pressed": isSelected ? "true" : "false",
    onClick: onSelect,
    onFocus,
    onBlur,
  };
  return html`
    <g class=${`segment-map-bar is-${section} ${isSelected ? "is-selected" : ""}`} ...${button} onMouseEnter=${onShow}>
      <rect class="segment-map-hit" x=${bar.x} y=${BAR_TOP - 2} width=${bar.width} height=${BAR_HEIGHT + 18} />
      ${fill < 1 && html`<rect class="segment-map-hole" x=${bar.x + 0.5} y=${BAR_TOP + 0.5} width=${Math.max(bar.width - 1, 0.5)} height=${BAR_HEIGHT - 1} />`}
      <rect class="segment-map-fill" x=${bar.x} y=${top} width=${bar.width} height=${height} />
      ${section !== "clean" && html`<rect x=${bar.x} y=${top} width=${bar.width} height=${height} fill=${`url(#${id}-${section})`} />`}
      ${bucket.error != null && html`<text class="segment-map-damage" x=${middle} y=${BAR_TOP + BAR_HEIGHT / 2} text-anchor="middle">!</text>`}
      ${hasTombstones(bucket) && html`<path class="segment-map-tombstone" d=${`M${middle - 3} ${MARKS_TOP + 3}h6M${middle} ${MARKS_TOP}v9`} />`}
      <rect class="segment-map-edge" x=${bar.x + 1} y=${BAR_TOP - 1} width=${Math.max(bar.width - 2, 1)} height=${BAR_HEIGHT + 2} />
    </g>
  `;
}

// Patterns distinguish sections without colour.
function Patterns({ id }) {
  return html`
    <defs>
      <pattern id=${`${id}-dirty`} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="segment-map-ink" width="2" height="6" />
      </pattern>
      <pattern id=${`${id}-uncleanable`} width="6" height="6" patternUnits="userSpaceOnUse">
        <circle class="segment-map-ink" cx="3" cy="3" r="1.4" />
      </pattern>
      <pattern id=${`${id}-active`} width="6" height="6" patternUnits="userSpaceOnUse">
        <rect class="segment-map-ink" width="6" height="1.5" />
      </pattern>
      <pattern id=${`${id}-deleted`} width="8" height="8" patternUnits="userSpaceOnUse">
        <path class="segment-map-cross" d="M0 0L8 8M8 0L0 8" />
      </pattern>
    </defs>
  `;
}

function Run({ run }) {
  const text = runText(run);
  const word = run.section;
  const width = run.to - run.from;
  const chosen = [text, word].find((each) => each.length * CHARACTER_WIDTH < width);
  return html`
    <g aria-hidden="true">
      <path class="segment-map-bracket" d=${`M${run.from + 0.5} ${BAR_TOP - 3}v-4H${run.to - 0.5}v4`} />
      ${chosen !== undefined && html`<text class="segment-map-text" x=${run.from} y="14">${chosen}</text>`}
    </g>
  `;
}

function runText(run) {
  return `${run.section}: ${plural(run.segments, "segment")}, ${formatBytes(run.size_bytes)}`;
}

/** The fraction of a bucket's offsets that have a record. */
function fillOf(bucket) {
  if (!(bucket.holes > 0) || bucket.records == null) return 1;
  return Math.max(FILL_MIN, bucket.records / (bucket.records + bucket.holes));
}

/** Whether a bucket has tombstones or transaction markers with a delete horizon. */
function hasTombstones(bucket) {
  return bucket.tombstones > 0 || bucket.delete_horizon_ms != null;
}

/** Widths proportional to bytes, with a minimum that can be seen and clicked. */
function layOut(buckets, width) {
  const room = width - GAP * (buckets.length - 1);
  if (room <= 0) return [];
  const least = Math.min(BAR_WIDTH_MIN, room / buckets.length);
  const sum = buckets.reduce((total, bucket) => total + bucket.size_bytes, 0);
  const spare = room - least * buckets.length;
  let x = 0;
  return buckets.map((bucket) => {
    const share = sum === 0 ? 1 / buckets.length : bucket.size_bytes / sum;
    const bar = { x, width: least + spare * share };
    x += bar.width + GAP;
    return bar;
  });
}

/** Runs of adjacent bars in the same section, for captions. */
function runsOf(buckets, bars) {
  const runs = [];
  bars.forEach((bar, index) => {
    const bucket = buckets[index];
    const section = sectionOf(bucket);
    const last = runs.at(-1);
    const segments = bucket.segments ?? 1;
    if (last?.section === section) {
      last.to = bar.x + bar.width;
      last.segments += segments;
      last.size_bytes += bucket.size_bytes;
    } else {
      const { size_bytes } = bucket;
      runs.push({ section, from: bar.x, to: bar.x + bar.width, segments, size_bytes });
    }
  });
  return runs;
}

/** The legend of the patterns that occur. */
export function Legend({ buckets }) {
  const sums = new Map();
  for (const bucket of buckets) {
    const sum = sums.get(sectionOf(bucket)) ?? { segments: 0, size_bytes: 0 };
    sum.segments += bucket.segments ?? 1;
    sum.size_bytes += bucket.size_bytes;
    sums.set(sectionOf(bucket), sum);
  }
  const hasHoles = buckets.some((bucket) => bucket.holes > 0);
  return html`
    <ul class="legend">
      ${Object.keys(SECTIONS).filter((name) => sums.has(name)).map((name) => html`
        <li key=${name} title=${SECTIONS[name]}>
          <${Sample} section=${name} />
          <span><strong>${name}</strong> ${plural(sums.get(name).segments, "segment")}, ${formatBytes(sums.get(name).size_bytes)} <span class="dim">${SECTIONS[name]}</span></span>
        </li>
      `)}
      ${hasHoles && html`<li><${Sample} section="hole" /><span><strong>holes</strong> <span class="dim">the empty upper part of a bar: offsets of removed records</span></span></li>`}
      ${buckets.some(hasTombstones) && html`<li><${Sample} section="tombstone" /><span><strong>tombstones</strong> <span class="dim">a cross below a bar: records that delete a key, or markers with a delete horizon</span></span></li>`}
      ${buckets.some((bucket) => bucket.error != null) && html`<li><strong>!</strong> <span><strong>damage</strong> <span class="dim">its batches could not be counted</span></span></li>`}
    </ul>
  `;
}

function Sample({ section }) {
  const id = useRef(null);
  id.current ??= `sample${(instances += 1)}`;
  if (section === "tombstone") {
    return html`<svg class="sample" viewBox="0 0 18 14" aria-hidden="true"><path class="segment-map-tombstone" d="M6 5h6M9 2v10" /></svg>`;
  }
  const isHole = section === "hole";
  return html`
    <svg class=${`sample segment-map-bar is-${section}`} viewBox="0 0 18 14" aria-hidden="true">
      ${!isHole && html`<${Patterns} id=${id.current} />`}
      <rect class=${isHole ? "segment-map-hole" : "segment-map-fill"} x="0.5" y="0.5" width="17" height="13" />
      ${!isHole && section !== "clean" && html`<rect x="0.5" y="0.5" width="17" height="13" fill=${`url(#${id.current}-${section})`} />`}
    </svg>
  `;
}

/** Add the number of tombstones to each bucket. */
function withTombstones(answer, segments) {
  if (segments === undefined) return answer;
  const buckets = answer.buckets.map((bucket) => {
    const inside = segments.filter(
      ({ base_offset: base }) => base >= bucket.base_offset && base <= bucket.last_offset,
    );
    const tombstones = inside.reduce((sum, each) => sum + each.records, 0);
    return bucket.deleted ? bucket : { ...bucket, tombstones };
  });
  return { ...answer, buckets };
}

// -- requesting the map --------------------------------------------------------------------

const BUCKETS_MAX = 200;
const BUCKET_PIXELS = 9;
const ZOOM = 4;

/** The segment map of a partition, with zoom. */
export function PartitionMap({ topic, partition, selected, onOpen, isMeant, isCostly }) {
  const [range, setRange] = useState(null);
  const root = useRef(null);
  const [room, setRoom] = useState(120);
  useEffect(() => {
    setRoom(Math.max(20, Math.min(BUCKETS_MAX, Math.floor(root.current.clientWidth / BUCKET_PIXELS))));
  }, []);
  const target = withQuery(`${path("partitions", topic, partition)}/segment-map`, {
    buckets: room,
    first: range?.first,
    count: range?.count,
  });
  const request = useAnswer(target, { on: ["partitions", "cleaned"], isMeant });
  const { error, reload } = request;
  // Counting tombstones reads every record, so large logs show only delete horizons.
  const counted = useAnswer(isCostly ? null : `${path("partitions", topic, partition)}/tombstones`, {
    on: ["partitions", "cleaned"],
    isMeant,
  });
  const answer = useMemo(
    () => request.answer && withTombstones(request.answer, counted.answer?.segments),
    [request.answer, counted.answer],
  );
  const total = answer?.total ?? 0;
  const first = answer?.first ?? 0;
  const count = answer?.count ?? total;

  const zoom = (from, size) => {
    const wanted = Math.max(1, Math.min(total, Math.round(size)));
    const start = Math.max(0, Math.min(total - wanted, Math.round(from)));
    setRange(wanted === total ? null : { first: start, count: wanted });
  };
  const middle = first + count / 2;
  const closer = (around = middle) => zoom(around - count / ZOOM / 2, Math.max(count / ZOOM, 4));
  const wider = () => zoom(middle - (count * ZOOM) / 2, count * ZOOM);
  const select = (bucket) => {
    if ((bucket.segments ?? 1) > 1) zoom(bucket.first, bucket.segments);
    else onOpen(bucket);
  };
  const onKey = (key, bucket) => {
    if (key === "+") closer(bucket.first);
    else if (key === "-") wider();
    else if (key === "0") setRange(null);
    else return false;
    return true;
  };

  return html`
    <div ref=${root}>
      ${error !== null && html`<${Failure} error=${error} onRetry=${reload} what="Segments" />`}
      ${answer === null && error === null && html`<${Loading} what="Loading the segments" />`}
      ${answer !== null && answer.buckets.length === 0 && html`<${Empty}>There are no segments yet: the first append creates one.</${Empty}>`}
      ${answer !== null && answer.buckets.length > 0 && html`
        ${(total > room || range !== null) && html`
          <div class="tools segment-map-tools">
            <span role="status">
              ${range === null ? `All ${formatCount(total)} segments` : `Segments ${formatCount(first + 1)} to ${formatCount(first + count)} of ${formatCount(total)}`}
            </span>
            <button type="button" onClick=${() => closer()} disabled=${count <= 4}>Closer</button>
            <button type="button" onClick=${wider} disabled=${range === null}>Wider</button>
            <button type="button" onClick=${() => zoom(first - count, count)} disabled=${first === 0}>Earlier</button>
            <button type="button" onClick=${() => zoom(first + count, count)} disabled=${first + count >= total}>Later</button>
            <button type="button" onClick=${() => setRange(null)} disabled=${range === null}>Whole log</button>
          </div>
        `}
        <${SegmentMap} buckets=${answer.buckets} label="Segments" selected=${selected} onSelect=${select} onKey=${onKey} />
        <${Legend} buckets=${answer.buckets} />
      `}
    </div>
  `;
}
