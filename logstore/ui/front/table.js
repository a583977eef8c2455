// Virtual tables: only the rows in view are in the document.
//
// A table is an ARIA grid with one tab stop and arrow keys. Row heights vary. A row that has not
// been rendered is assumed to have the mean height of the first rendered rows.

import {
  html,
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useReducer,
  useRef,
  useState,
} from "./vendor/htm-preact.js";
import { getJson, Pace, subscribe } from "./api.js";

const ROW_HEIGHT_FIRST = 40;
const OVERSCAN_PIXELS = 400;

/** Row positions, computed from measured and estimated heights. */
class Heights {
  constructor(total, before) {
    this.known = new Float64Array(total);
    this.known.set(before?.known.subarray(0, total) ?? []);
    this.tops = new Float64Array(total + 1);
    this._supposed = before?._supposed ?? null;
    this.settle();
  }

  /** Discard all heights, for example after the width changes. */
  forget() {
    this.known.fill(0);
    this._supposed = null;
    this.settle();
  }

  /** Record the height of a row, and return whether it changed. Call `settle` afterwards. */
  set(row, height) {
    if (row >= this.known.length || height === 0) return false;
    if (Math.abs(this.known[row] - height) < 0.5) return false;
    this.known[row] = height;
    return true;
  }

  settle() {
    // Estimate only once, because a new estimate would move thousands of rows.
    if (this._supposed === null) {
      const measured = this.known.filter((height) => height > 0);
      const sum = measured.reduce((total, height) => total + height, 0);
      if (measured.length > 0) this._supposed = sum / measured.length;
    }
    let top = 0;
    for (let row = 0; row < this.known.length; row += 1) {
      this.tops[row] = top;
      top += this.known[row] || this._supposed || ROW_HEIGHT_FIRST;
    }
    this.tops[this.known.length] = top;
  }

  /** Return the row at a distance from the top. */
  rowAt(distance) {
    let low = 0;
    let high = Math.max(this.known.length - 1, 0);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.tops[middle] <= distance) low = middle;
      else high = middle - 1;
    }
    return low;
  }
}

/**
 * A grid that renders rows as they scroll into view.
 *
 * A column is `{name, title, draw(row, tabIndex)}` with optional `width` (a CSS grid track), `sort`
 * (name of the sort key), `isNumber`, `isHeader` (row header), and `hasControl` (the cell is a link
 * or button with the tab index). `rowAt(index)` returns a row, or undefined if it is not loaded.
 * `keyOf(row)` returns its key, or null for undefined. `onNeed(first, last)` is called with the rows
 * in view. `sort` is `{by, descending}`.
 */
export function Table({ label, columns, total, rowAt, keyOf, onNeed, sort, onSort, isBusy }) {
  const root = useRef(null);
  const body = useRef(null);
  const held = useRef(null);
  const heights = useMemo(() => new Heights(total, held.current), [total]);
  held.current = heights;
  const [, redraw] = useReducer((count) => count + 1, 0);
  const [seen, setSeen] = useState([0, 30]);
  const [active, setActive] = useState({ row: 0, column: 0, key: null });
  const wantsFocus = useRef(false);
  const width = useRef(0);

  const look = useCallback(() => {
    if (body.current === null) return;
    const box = body.current.getBoundingClientRect();
    const first = heights.rowAt(-box.top - OVERSCAN_PIXELS);
    const last = heights.rowAt(innerHeight - box.top + OVERSCAN_PIXELS);
    setSeen((before) => (before[0] === first && before[1] === last ? before : [first, last]));
  }, [heights]);

  useEffect(() => {
    let frame = 0;
    const soon = () => {
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        look();
      });
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    const observer = new ResizeObserver(([entry]) => {
      if (entry.contentRect.width !== width.current) {
        width.current = entry.contentRect.width;
        heights.forget();
        redraw();
      }
      soon();
    });
    observer.observe(root.current);
    look();
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
      observer.disconnect();
    };
  }, [look]);

  // The active cell follows its item when rows are reordered.
  let activeRow = Math.min(active.row, Math.max(total - 1, 0));
  if (active.key !== null && keyOf(rowAt(activeRow)) !== active.key) {
    for (let row = seen[0]; row <= Math.min(seen[1], total - 1); row += 1) {
      if (keyOf(rowAt(row)) === active.key) activeRow = row;
    }
  }

  const drawn = [];
  for (let row = seen[0]; row <= Math.min(seen[1], total - 1); row += 1) drawn.push(row);
  // Keep the focused row in the document when it scrolls out of view, or the focus would be lost.
  if (total > 0 && (activeRow < seen[0] || activeRow > seen[1])) drawn.push(activeRow);

  useEffect(() => onNeed(seen[0], Math.min(seen[1], total - 1)), [seen, total, onNeed]);

  useLayoutEffect(() => {
    let isChanged = false;
    for (const element of body.current.children) {
      isChanged = heights.set(Number(element.dataset.row), element.offsetHeight) || isChanged;
    }
    if (!isChanged) return;
    // Rows in view keep their position when rows above them are measured.
    const above = -body.current.getBoundingClientRect().top;
    const anchor = heights.rowAt(Math.max(0, above));
    const before = heights.tops[anchor];
    heights.settle();
    const moved = heights.tops[anchor] - before;
    if (above > 0 && moved !== 0) {
      body.current.style.height = `${heights.tops[total]}px`;
      scrollBy(0, moved);
    }
    redraw();
    look();
  });

  const hadFocus = body.current?.contains(document.activeElement) ?? false;
  useLayoutEffect(() => {
    // The focused row may have been replaced.
    const isLost = hadFocus && !body.current.contains(document.activeElement);
    if (!wantsFocus.current && !isLost) return;
    const cell = body.current.querySelector('[data-active="yes"]');
    (cell?.querySelector("a, button") ?? cell)?.focus({ preventScroll: true });
    if (wantsFocus.current) cell?.parentElement.scrollIntoView({ block: "nearest" });
    wantsFocus.current = false;
  });

  const go = (row, column) => {
    const next = Math.max(0, Math.min(total - 1, row));
    wantsFocus.current = true;
    setActive({
      row: next,
      column: Math.max(0, Math.min(columns.length - 1, column)),
      key: keyOf(rowAt(next)),
    });
  };

  const onKeyDown = (event) => {
    if (event.altKey || event.metaKey || event.target.closest(".table-head")) return;
    const page = Math.max(1, Math.floor((innerHeight * 0.8) / (heights.tops[total] / total)));
    const moves = {
      ArrowDown: [activeRow + 1, active.column],
      ArrowUp: [activeRow - 1, active.column],
      PageDown: [activeRow + page, active.column],
      PageUp: [activeRow - page, active.column],
      ArrowRight: [activeRow, active.column + 1],
      ArrowLeft: [activeRow, active.column - 1],
      Home: [event.ctrlKey ? 0 : activeRow, 0],
      End: [event.ctrlKey ? total - 1 : activeRow, columns.length - 1],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    go(...moves[event.key]);
  };

  const onFocusIn = (event) => {
    const cell = event.target.closest("[data-column]");
    if (cell === null) return;
    const row = Number(cell.parentElement.dataset.row);
    const column = Number(cell.dataset.column);
    if (row === activeRow && column === active.column) return;
    setActive({ row, column, key: keyOf(rowAt(row)) });
  };

  const tracks = columns.map((column) => column.width ?? "minmax(0, 1fr)").join(" ");
  const keys = new Set();
  return html`
    <div
      class="table"
      role="grid"
      ref=${root}
      aria-label=${label}
      aria-rowcount=${total + 1}
      aria-colcount=${columns.length}
      aria-busy=${isBusy ? "true" : null}
      style=${{ "--tracks": tracks }}
      onKeyDown=${onKeyDown}
      onFocusIn=${onFocusIn}
    >
      <div class="table-head" role="rowgroup">
        <div class="row" role="row" aria-rowindex="1">
          ${columns.map((column) => html`
            <${Heading} key=${column.name} column=${column} sort=${sort} onSort=${onSort} />
          `)}
        </div>
      </div>
      <div
        class="table-body"
        role="rowgroup"
        ref=${body}
        style=${{ height: `${heights.tops[total]}px` }}
      >
        ${drawn.map((index) => {
          const row = rowAt(index);
          let key = keyOf(row);
          if (key === null || keys.has(key)) key = `row ${index}`;
          keys.add(key);
          return html`
            <div
              key=${key}
              class=${`row ${row === undefined ? "is-awaited" : ""}`}
              role="row"
              aria-rowindex=${index + 2}
              data-row=${index}
              style=${{ top: `${heights.tops[index]}px` }}
            >
              ${columns.map((column, number) => {
                const isActive = index === activeRow && number === active.column;
                const content = row === undefined ? "…" : column.draw(row, isActive ? 0 : -1);
                const isControl = row !== undefined && column.hasControl;
                return html`
                  <div
                    key=${column.name}
                    role=${column.isHeader ? "rowheader" : "gridcell"}
                    aria-colindex=${number + 1}
                    class=${`cell is-${column.name} ${column.isNumber ? "is-number" : ""}`}
                    data-title=${column.title}
                    data-column=${number}
                    data-active=${isActive ? "yes" : null}
                    tabindex=${isControl ? null : isActive ? 0 : -1}
                  >
                    ${content}
                  </div>
                `;
              })}
            </div>
          `;
        })}
      </div>
    </div>
  `;
}

function Heading({ column, sort, onSort }) {
  const isSorted = column.sort !== undefined && sort?.by === column.sort;
  const direction = isSorted ? (sort.descending ? "descending" : "ascending") : "none";
  const isButton = column.sort !== undefined && onSort !== undefined;
  return html`
    <div
      role="columnheader"
      class=${`cell is-${column.name} ${column.isNumber ? "is-number" : ""}`}
      aria-sort=${isButton ? direction : null}
    >
      ${isButton
        ? html`
            <button type="button" class="sort" onClick=${() => onSort(column.sort)}>
              ${column.title}<span class="sort-mark" aria-hidden="true"
                >${isSorted ? (sort.descending ? "▼" : "▲") : "↕"}</span
              >
            </button>
          `
        : column.title}
    </div>
  `;
}

/**
 * Hook: rows loaded in chunks. Returns `{total, rowAt, need, error, answer, reload}`.
 *
 * `targetOf(first, count)` returns the address of a chunk, and `rowsOf(answer)` its rows. An event
 * in `on` refreshes the chunks in view at a `Pace` (the fastest while `isUrgent(answer)`), and the
 * others when they scroll into view.
 */
export function usePieces(targetOf, rowsOf, { size = 100, on = [], isUrgent } = {}) {
  const [, redraw] = useReducer((count) => count + 1, 0);
  const query = targetOf(0, size);
  const store = useRef({ query: null, pieces: new Map(), wanted: [0, 0], total: null });
  const data = store.current;

  const fetchPiece = useCallback(async (piece) => {
    const held = data.pieces.get(piece);
    if (held?.isAsked) {
      held.isStale = true;
      return;
    }
    const mine = data.query;
    const begunMs = performance.now();
    data.pieces.set(piece, { ...held, isAsked: true, isStale: false });
    try {
      const answer = await getJson(data.targetOf(piece * size, size));
      if (data.query !== mine) return;
      const isAgain = data.pieces.get(piece).isStale;
      if (data.isTurning) data.pieces.clear();
      data.isTurning = false;
      data.pieces.set(piece, { rows: data.rowsOf(answer), isAsked: false, isStale: isAgain });
      Object.assign(data, { answer, total: answer.total, error: null });
      data.pace.took(data.isUrgent?.(answer) ? 0 : performance.now() - begunMs);
      if (isAgain) data.pace.ask();
    } catch (error) {
      if (data.query !== mine) return;
      data.pieces.set(piece, { ...held, isAsked: false });
      data.error = error;
    }
    redraw();
  }, []);

  const need = useCallback((first, last) => {
    data.wanted = [Math.floor(first / size), Math.floor(Math.max(last, first) / size)];
    for (let piece = data.wanted[0]; piece <= data.wanted[1]; piece += 1) {
      const held = data.pieces.get(piece);
      if (held === undefined || (held.isStale && !held.isAsked)) fetchPiece(piece);
    }
  }, []);

  const reload = useCallback(() => {
    for (const held of data.pieces.values()) held.isStale = true;
    data.error = null;
    for (let piece = data.wanted[0]; piece <= data.wanted[1]; piece += 1) fetchPiece(piece);
    redraw();
  }, []);

  data.pace ??= new Pace(reload);
  Object.assign(data, { targetOf, rowsOf, isUrgent });
  useEffect(() => {
    // Keep the old rows until the first new ones arrive.
    Object.assign(data, { query, isTurning: data.query !== null, wanted: [0, 0], error: null });
    for (const held of data.pieces.values()) Object.assign(held, { isAsked: false });
    fetchPiece(0);
    redraw();
  }, [query]);

  useEffect(() => {
    const ends = on.map((name) => subscribe(name, () => data.pace.ask()));
    ends.push(subscribe("reconnected", reload));
    return () => {
      data.pace.stop();
      for (const end of ends) end();
    };
  }, []);

  const rowAt = (row) => data.pieces.get(Math.floor(row / size))?.rows?.[row % size];
  const { total, error = null, answer = null } = data;
  return { total, error, answer, rowAt, need, reload, isTurning: data.isTurning ?? false };
}
