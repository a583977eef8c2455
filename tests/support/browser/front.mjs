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

// -- elements ------------------------------------------------------------------------------

/** What a renderer needs of an element or text; `outline` prints it. */
class FakeNode {
  constructor(name, text = null) {
    Object.assign(this, { nodeType: text === null ? 1 : 3, localName: name, _data: text });
    Object.assign(this, { childNodes: [], parentNode: null, attributes: new Map(), heard: new Map() });
    this.ownerDocument = globalThis.document;
    this.style = { setProperty: () => {} };
  }

  get data() {
    return this._data === null ? null : String(this._data);
  }

  set data(text) {
    this._data = text;
  }

  get firstChild() {
    return this.childNodes[0] ?? null;
  }

  get children() {
    return this.childNodes.filter((each) => each.nodeType === 1);
  }

  get dataset() {
    const names = [...this.attributes].filter(([name]) => name.startsWith("data-"));
    return Object.fromEntries(names.map(([name, value]) => [name.slice("data-".length), value]));
  }

  get nextSibling() {
    const siblings = this.parentNode?.childNodes ?? [];
    return siblings[siblings.indexOf(this) + 1] ?? null;
  }

  get text() {
    return this.data ?? this.childNodes.map((each) => each.text).join("");
  }

  appendChild(node) {
    return this.insertBefore(node, null);
  }

  insertBefore(node, before) {
    node.parentNode?.removeChild(node);
    const index = before === null ? this.childNodes.length : this.childNodes.indexOf(before);
    this.childNodes.splice(index, 0, node);
    node.parentNode = this;
    return node;
  }

  removeChild(node) {
    this.childNodes = this.childNodes.filter((each) => each !== node);
    node.parentNode = null;
    return node;
  }

  setAttribute(name, value) {
    this.attributes.set(name, String(value));
  }

  removeAttribute(name) {
    this.attributes.delete(name);
  }

  addEventListener(name, call) {
    this.heard.set(name, call);
  }

  removeEventListener(name) {
    this.heard.delete(name);
  }

  dispatch(name, fields = {}) {
    const event = { type: name, target: this, currentTarget: this, ...fields };
    event.preventDefault = () => {};
    event.stopPropagation = () => {};
    return this.heard.get(name).call(this, event);
  }

  all() {
    return [this, ...this.childNodes.flatMap((each) => each.all())];
  }

  querySelector() {
    return null;
  }

  contains(node) {
    return this.all().includes(node);
  }

  get isConnected() {
    return this.parentNode !== null;
  }

  get offsetHeight() {
    return 40;
  }

  get clientWidth() {
    return 800;
  }

  getBoundingClientRect() {
    return { left: 0, top: 0, width: 800, height: 40 };
  }

  focus() {
    globalThis.document.activeElement = this;
  }

  showModal() {
    this.setAttribute("open", "");
  }

  close() {
    this.removeAttribute("open");
  }

  /** Lines of text: an element's name and attributes, then its texts and elements, indented. */
  outline(indent = "") {
    const styles = Object.entries(this.style).filter(([, value]) => typeof value === "string" && value !== "");
    const attributes = [
      ...[...this.attributes].map(([name, value]) => (value === "" ? name : `${name}=${JSON.stringify(value)}`)),
      ...styles.map(([name, value]) => `${name}: ${value}`),
      ...[...this.heard.keys()].map((name) => `on ${name}`),
    ];
    const head = [this.localName, ...attributes.sort()].join(" ");
    const inner = [];
    for (const each of this.childNodes) {
      if (each.nodeType === 1) inner.push(each.outline(`${indent}  `));
      else if (typeof inner.at(-1) === "string") inner.push(inner.pop() + each.data);
      else inner.push(each.data);
    }
    const shown = inner.filter((each) => typeof each !== "string" || each.trim() !== "");
    if (shown.length === 1 && typeof shown[0] === "string") return [`${indent}${head}: ${JSON.stringify(shown[0])}`];
    return [
      `${indent}${head}`,
      ...shown.flatMap((each) => (typeof each === "string" ? [`${indent}  ${JSON.stringify(each)}`] : each)),
    ];
  }
}

class World {
  constructor() {
    this.nowMs = 0;
    this.timers = [];
    this.sources = [];
    this.requests = [];
    this.listeners = [];
    this.document = null;
    this.install();
  }

  /** Make this world the one that modules see: a story continues after another request. */
  install() {
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
    this.document ??= {
      hidden: false,
      addEventListener: (name, call) => this.listeners.push({ name, call }),
      removeEventListener: (name, call) => {
        this.listeners = this.listeners.filter((each) => each.call !== call);
      },
      createElement: (name) => new FakeNode(name),
      createElementNS: (_, name) => new FakeNode(name),
      createTextNode: (text) => new FakeNode("#text", text),
      getElementById: () => null,
      querySelector: () => null,
    };
    globalThis.document = this.document;
    this.document.activeElement ??= this.document.body = new FakeNode("body");
    globalThis.addEventListener = () => {};
    globalThis.removeEventListener = () => {};
    globalThis.dispatchEvent = () => {};
    globalThis.HashChangeEvent = class {};
    globalThis.ResizeObserver = class {
      observe() {}

      disconnect() {}
    };
    globalThis.innerHeight = 600;
    globalThis.getComputedStyle = () => ({ fontSize: "16px" });
    globalThis.location = this.location ??= { hash: "#/", origin: "http://127.0.0.1:4711" };
    globalThis.history = {
      replaceState: (_, __, hash) => {
        globalThis.location.hash = hash;
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

  /** Render a component of a module into elements, and return their root. */
  async show(module, name, properties) {
    const { html, render } = await this.load("vendor/htm-preact.js");
    const { [name]: component } = await this.load(module);
    const root = new FakeNode("root");
    render(html`<${component} ...${properties} />`, root);
    this.end = () => render(null, root);
    return root;
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
