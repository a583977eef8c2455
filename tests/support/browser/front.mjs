// Runs the page's modules in Node.js, without a browser. `front.py` starts this program.
//
// Each line of standard input is a request {code, argument}: `code` is a function that takes a
// `World` and `argument`. Its result is written as one line of JSON. Timers, the event stream,
// requests and the document are fakes that the code controls through the `World`; nothing waits for
// real time.

import { cpSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [source, copy] = process.argv.slice(2);
// Without this file Node.js would load them as CommonJS modules.
cpSync(source, copy, { recursive: true });
writeFileSync(join(copy, "package.json"), '{"type": "module"}');

const realImmediate = setImmediate;
let loads = 0;

class World {
  constructor() {
    this.nowMs = 0;
    this.timers = [];
    this.sources = [];
    this.requests = [];
    this.listeners = [];
    globalThis.setTimeout = (call, ms = 0) => {
      const timer = { call, dueMs: this.nowMs + ms };
      this.timers.push(timer);
      return timer;
    };
    globalThis.clearTimeout = (timer) => {
      this.timers = this.timers.filter((each) => each !== timer);
    };
    globalThis.performance = { now: () => this.nowMs };
    globalThis.requestAnimationFrame = (call) => realImmediate(call);
    globalThis.cancelAnimationFrame = (frame) => clearImmediate(frame);
    globalThis.document = {
      hidden: false,
      addEventListener: (name, call) => this.listeners.push({ name, call }),
      removeEventListener: (name, call) => {
        this.listeners = this.listeners.filter((each) => each.call !== call);
      },
    };
    const world = this;
    globalThis.EventSource = class {
      static CLOSED = 2;

      constructor(url) {
        Object.assign(this, { url, readyState: 1, heard: new Map() });
        world.sources.push(this);
      }

      set onopen(call) {
        this.opened = call;
      }

      get onopen() {
        return () => {
          this.isOpen = true;
          this.opened?.();
        };
      }

      addEventListener(name, call) {
        this.heard.set(name, call);
      }

      close() {
        this.readyState = 2;
      }

      send(name, data) {
        if (!this.isOpen) this.onopen();
        this.heard.get(name)?.({ data: JSON.stringify(data) });
      }
    };
    globalThis.fetch = (url, options) =>
      new Promise((resolve, reject) => {
        const answer = (body, status = 200) =>
          resolve({ ok: status < 400, status, text: async () => JSON.stringify(body) });
        const fail = (error = new TypeError("no connection")) => reject(error);
        options.signal?.addEventListener("abort", () =>
          fail(Object.assign(new Error("aborted"), { name: "AbortError" })),
        );
        this.requests.push({ url, options, answer, fail });
      });
  }

  /** Import a module of the page; `isFresh` imports one that shares no state with earlier ones. */
  load(name, isFresh = false) {
    const { href } = pathToFileURL(join(copy, name));
    return import(isFresh ? `${href}?${++loads}` : href);
  }

  /** Advance time and call each timer that is due; with 0, only run what is due now. */
  async advance(ms) {
    const endMs = this.nowMs + ms;
    for (;;) {
      // Let promises and frames that need no timer finish first.
      for (let round = 0; round < 10; round++) await new Promise((done) => realImmediate(done));
      const due = this.timers.filter((each) => each.dueMs <= endMs);
      if (due.length === 0) break;
      const next = due.reduce((one, other) => (other.dueMs < one.dueMs ? other : one));
      this.timers = this.timers.filter((each) => each !== next);
      this.nowMs = Math.max(this.nowMs, next.dueMs);
      next.call();
    }
    this.nowMs = endMs;
  }

  /** Render an empty component that calls a hook; return the function that removes it. */
  async render(call) {
    const { html, render } = await this.load("vendor/htm-preact.js");
    const parent = { nodeType: 1, childNodes: [], firstChild: null };
    function Probe() {
      call();
      return null;
    }
    render(html`<${Probe} />`, parent);
    await this.advance(0);
    return () => render(null, parent);
  }
}

let uncaught = null;
process.on("uncaughtException", (error) => {
  uncaught ??= error;
});

for await (const line of createInterface({ input: process.stdin })) {
  const { code, argument } = JSON.parse(line);
  let answer;
  try {
    const call = new Function(`return (${code});`)();
    answer = { result: (await call(new World(), argument)) ?? null };
    if (uncaught !== null) throw uncaught;
  } catch (error) {
    answer = { error: String(error?.stack ?? error) };
  }
  uncaught = null;
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
