// Requests to the API, and the event stream.

import { useCallback, useEffect, useRef, useState } from "./vendor/htm-preact.js";

const RETRY_FIRST_MS = 1_000;
const RETRY_LAST_MS = 30_000;
/** Time limit for opening the event stream. */
const OPEN_TIMEOUT_MS = 10_000;

/** An error response of the API. */
export class ApiError extends Error {
  constructor(status, body) {
    const error = body?.error ?? {};
    super(error.message ?? `The server responded with status ${status}.`);
    this.name = "ApiError";
    this.status = status;
    this.type = error.type ?? null;
    this.field = error.field ?? null;
    this.suggestion = error.suggestion ?? null;
    this.body = body;
  }
}

/** Return an API path with escaped parts: `path("partitions", topic, 0)`. */
export function path(...parts) {
  return parts.map((part) => encodeURIComponent(part)).join("/");
}

/** Return a path with query parameters, omitting those that are null or undefined. */
export function withQuery(base, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value != null && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return text ? `${base}?${text}` : base;
}

export function getJson(target, options = {}) {
  return request("GET", target, undefined, options);
}

export function postJson(target, body = {}) {
  return request("POST", target, body);
}

export function deleteJson(target, body = {}) {
  return request("DELETE", target, body);
}

async function request(method, target, body, { signal } = {}) {
  const options = { method, signal, headers: { Accept: "application/json" } };
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(`api/${target}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    const message = "The server cannot be reached: it has stopped, or the connection is lost.";
    throw new ApiError(0, { error: { type: "ConnectionError", message } });
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    answer = { error: { type: null, message: text.slice(0, 500) } };
  }
  if (!response.ok) throw new ApiError(response.status, answer);
  return answer;
}

// -- events --------------------------------------------------------------------------------

/** Events of the page itself, not sent by the server. */
const OWN = new Set(["state", "reconnected"]);

/** The event stream of the page. Reconnects automatically. */
class Live {
  constructor() {
    this.state = "connecting";
    this.problem = null;
    this._wasLost = false;
    this._listeners = new Map();
    this._heard = new Set();
    this._source = null;
    this._retryMs = RETRY_FIRST_MS;
    this._timer = null;
    this._openTimer = null;
  }

  /** Call `listener(data)` on every event called `name`. Returns a function that unsubscribes. */
  on(name, listener) {
    if (!this._listeners.has(name)) this._listeners.set(name, new Set());
    this._listeners.get(name).add(listener);
    this._hear(name);
    return () => this._listeners.get(name).delete(listener);
  }

  connect() {
    clearTimeout(this._timer);
    this._timer = null;
    this._source?.close();
    const source = new EventSource("api/events");
    this._source = source;
    this._heard.clear();
    clearTimeout(this._openTimer);
    this._openTimer = setTimeout(() => this._abandon(source), OPEN_TIMEOUT_MS);
    source.onopen = () => this._opened();
    source.onerror = () => this._failed(source);
    for (const name of this._listeners.keys()) this._hear(name);
  }

  _hear(name) {
    if (this._source === null || OWN.has(name) || this._heard.has(name)) return;
    this._heard.add(name);
    this._source.addEventListener(name, (event) => this._tell(name, parsed(event.data)));
  }

  _opened() {
    clearTimeout(this._openTimer);
    const wasLost = this._wasLost;
    this._wasLost = false;
    this._retryMs = RETRY_FIRST_MS;
    this.problem = null;
    this._become("open");
    // Events were missed, so request everything again.
    if (wasLost) this._tell("reconnected", null);
  }

  // The browser reconnects only if the server closes the stream, not after an error response or a
  // refused connection.
  _failed(source) {
    this._wasLost = true;
    this._become("lost");
    if (source.readyState !== EventSource.CLOSED || this._timer !== null) return;
    this._learnWhy();
    this._timer = setTimeout(() => this.connect(), this._retryMs);
    this._retryMs = Math.min(this._retryMs * 2, RETRY_LAST_MS);
  }

  // A server may accept a connection and never respond. The browser would wait forever.
  _abandon(source) {
    if (source !== this._source || this.state === "open") return;
    source.close();
    this._failed(source);
  }

  // An EventSource does not expose the error, such as a wrong token. Another request does.
  async _learnWhy() {
    try {
      await getJson("about");
    } catch (error) {
      this.problem = error.status === 0 ? null : error;
      if (this.state === "lost") this._become("lost");
    }
  }

  _become(state) {
    this.state = state;
    this._tell("state", state);
  }

  _tell(name, data) {
    for (const listener of [...(this._listeners.get(name) ?? [])]) listener(data);
  }
}

export const live = new Live();

/** Hook: call `callback(data)` on every event called `name`. */
export function subscribe(name, callback) {
  return live.on(name, callback);
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Hook: the event stream. Renders the component again when its state or problem changes. */
export function useConnection() {
  const [, setCount] = useState(0);
  useEffect(() => {
    const redraw = () => setCount((count) => count + 1);
    const end = subscribe("state", redraw);
    redraw(); // The stream may have opened between the first rendering and this effect.
    return end;
  }, []);
  return live;
}

/** Return whether a `partitions` or `cleaned` event is about a topic, or one of its partitions. */
export function concerns(data, topic, partition) {
  const names = data?.partitions ?? (data?.topic === undefined ? null : [data]);
  if (!Array.isArray(names)) return true;
  return names.some(
    (name) => name.topic === topic && (partition == null || name.partition === partition),
  );
}

// -- answers -------------------------------------------------------------------------------

const SOON_MS = 200;
const PAUSE_FIRST_MS = 1_000;
const PAUSE_LAST_MS = 10_000;
const SHARE = 100;

/**
 * Decides when to refresh an answer: soon after an isolated event, less often under a stream of
 * events (so that requests use 1 % of the server's time), and not while the page is hidden.
 */
export class Pace {
  constructor(run) {
    this._run = run;
    this._timer = null;
    this._restMs = 0;
    this._ask = () => this.ask();
  }

  /** Record the duration of a request. */
  took(ms) {
    const pauseMs = Math.min(PAUSE_LAST_MS, Math.max(PAUSE_FIRST_MS, ms * SHARE));
    this._restMs = performance.now() + pauseMs;
  }

  ask() {
    const waitMs = Math.max(SOON_MS, this._restMs - performance.now());
    this._timer ??= setTimeout(() => this._due(), waitMs);
  }

  stop() {
    clearTimeout(this._timer);
    this._timer = null;
    document.removeEventListener("visibilitychange", this._ask);
  }

  _due() {
    this._timer = null;
    if (document.hidden) document.addEventListener("visibilitychange", this._ask, { once: true });
    else this._run();
  }
}

const UNANSWERED = { answer: null, error: null, isLoading: true, isStale: false };

/**
 * Hook: an answer of the server. The old answer remains visible while it is refreshed.
 *
 * If `target` is null, no request is sent. `on` names events that trigger a refresh, limited by a
 * `Pace`, and `isMeant(data)` filters them. With `isCostly`, events only set `isStale`, and the
 * user decides when to refresh.
 */
export function useAnswer(target, { on = [], isMeant, isCostly = false } = {}) {
  const [state, setState] = useState(UNANSWERED);
  const run = useRef(null);
  run.current ??= { pace: new Pace(() => run.current.load()), busy: null, controller: null };
  Object.assign(run.current, { isMeant, isCostly });

  const load = useCallback(async () => {
    const now = run.current;
    if (target === null) return;
    if (now.busy === target) {
      now.isWantedAgain = true;
      return;
    }
    now.controller?.abort();
    const controller = new AbortController();
    Object.assign(now, { busy: target, controller, isWantedAgain: false });
    setState((before) => ({ ...before, isLoading: true }));
    const begunMs = performance.now();
    let after;
    try {
      const answer = await getJson(target, { signal: controller.signal });
      after = () => ({ answer, error: null, isLoading: false, isStale: false });
    } catch (error) {
      if (error.name === "AbortError") return;
      after = (before) => ({ ...before, error, isLoading: false });
    }
    if (now.controller !== controller || controller.signal.aborted) return;
    now.busy = null;
    now.pace.took(performance.now() - begunMs);
    setState(after);
    if (now.isWantedAgain) now.pace.ask();
  }, [target]);
  run.current.load = load;

  useEffect(() => {
    load();
    return () => {
      run.current.controller?.abort();
      run.current.busy = null;
    };
  }, [load]);

  useEffect(() => {
    const { pace } = run.current;
    const ends = on.map((name) =>
      subscribe(name, (data) => {
        if (!(run.current.isMeant?.(data) ?? true)) return;
        if (run.current.isCostly) setState((before) => ({ ...before, isStale: true }));
        else pace.ask();
      }),
    );
    ends.push(subscribe("reconnected", () => run.current.load()));
    return () => {
      pace.stop();
      for (const end of ends) end();
    };
  }, [on.join()]);

  return { ...state, reload: load };
}
