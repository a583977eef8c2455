// The frame of every page: header, navigation, connection state and router.

import {
  html,
  render,
  useEffect,
  useErrorBoundary,
  useLayoutEffect,
  useRef,
  useState,
} from "./vendor/htm-preact.js";
import { live, useAnswer, useConnection } from "./api.js";
import { ClockBar, FixedTime } from "./clock.js";
import { formatLocalTime, formatTime } from "./format.js";
import { Failure, Loading, useZone } from "./parts.js";
import { hashOf, parseHash } from "./routes.js";

const PAGES = {
  list: () => import("./list.js"),
  topic: () => import("./topic.js"),
  partition: () => import("./partition.js"),
  settings: () => import("./settings.js"),
  cleaner: () => import("./cleaner.js"),
  groups: () => import("./groups.js"),
  broker: () => import("./broker.js"),
};

const PLACES = [
  ["Partitions", "list", hashOf()],
  ["Cleaner", "cleaner", "#/cleaner"],
  ["Groups", "groups", "#/groups"],
  ["Broker", "broker", "#/broker"],
];
const UNDER = { topic: "list", partition: "list", settings: "list" };

function App() {
  const route = useRoute();
  const about = useAnswer("about", { on: ["clock"] });
  return html`
    <a class="skip" href="#main" onClick=${skip}>Skip to the content</a>
    <header class="top">
      <a class="brand" href=${hashOf()}>logstore</a>
      <nav aria-label="Pages">
        <ul>
          ${PLACES.map(([name, page, hash]) => {
            const isHere = (UNDER[route.page] ?? route.page) === page;
            return html`
              <li key=${page}><a href=${hash} aria-current=${isHere ? "page" : null}>${name}</a></li>
            `;
          })}
        </ul>
      </nav>
      <div class="top-state">
        ${about.answer?.read_only && html`<span class="badge is-plain" title=${about.answer.read_only_because}>read-only copy</span>`}
        ${about.answer !== null && html`<${FixedTime} clock=${about.answer.clock} />`}
        <${Connection} />
        <${ZoneSwitch} />
      </div>
      ${about.answer !== null &&
      html`<${ClockBar} about=${about.answer} refreshAbout=${about.reload} />`}
    </header>
    <main id="main" tabindex="-1">
      ${about.error !== null && about.answer === null
        ? html`<h1>No response</h1><${Failure} error=${about.error} onRetry=${about.reload} />`
        : html`<${Routed} key=${route.key} route=${route} about=${about} />`}
    </main>
    <footer class="bottom">
      ${about.answer !== null &&
      html`
        <span>logstore ${about.answer.version}</span>
        ${about.answer.data_dirs?.map((name) => html`<code key=${name}>${name}</code>`)}
      `}
    </footer>
    <div id="announcements" class="unseen" role="status" aria-live="polite"></div>
  `;
}

// The router uses the fragment, so a plain link to #main would leave the page.
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

// -- routes --------------------------------------------------------------------------------

function useRoute() {
  const [route, setRoute] = useState(() => parseHash(location.hash));
  useEffect(() => {
    const changed = () => setRoute(parseHash(location.hash));
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

/** Scroll position and followed link of visited pages, to restore them on return. */
const left = new Map();
const ARRIVAL_MS = 30_000; // or until a key, wheel or pointer event
let here = location.hash;
let followed = null;
let arrival = null;

history.scrollRestoration = "manual";
document.addEventListener("click", (event) => {
  followed = event.target.closest?.('a[href^="#/"]')?.getAttribute("href") ?? null;
  noteScroll(); // the scroll event fires in the next frame, possibly on another page
});
addEventListener("scroll", () => noteScroll(), { passive: true });
addEventListener("hashchange", () => {
  const before = here;
  here = location.hash;
  if (parseHash(before).key === parseHash(here).key) return; // for example while the user types a filter
  const isFollowed = followed === here;
  if (isFollowed) left.set(before, { ...left.get(before), link: followed });
  arrival = isFollowed ? {} : (left.get(here) ?? {});
  followed = null;
});

function noteScroll() {
  // After the address changes, the previous page is shown until the event fires.
  if (arrival === null && location.hash === here) {
    left.set(here, { ...left.get(here), scroll: scrollY });
  }
}

function Routed({ route, about }) {
  const [module, setModule] = useState(null);
  const [failure, setFailure] = useState(null);
  const [crash, recover] = useErrorBoundary();
  const load = () => {
    setFailure(null);
    PAGES[route.page]().then(setModule, setFailure);
  };
  useEffect(load, []);
  const isShown = module !== null && about.answer !== null && crash === undefined;
  useArrival(isShown);
  if (failure !== null) {
    const error = { type: "Page", message: `The page could not be loaded: ${failure.message}` };
    return html`<h1>${route.page}</h1><${Failure} error=${error} onRetry=${load} />`;
  }
  if (crash !== undefined) {
    console.error(crash);
    return html`<h1>Page error</h1><${Failure} error=${crash} onRetry=${recover} />`;
  }
  if (!isShown) return html`<${Loading} />`;
  return html`
    <${module.Page}
      params=${route.params}
      about=${about.answer}
      refreshAbout=${about.reload}
    />
  `;
}

/** Focus the heading of a new page. When the user returns to a page, restore the scroll position
 * and focus the followed link, as soon as they are rendered. */
function useArrival(isShown) {
  const isDone = useRef(false);
  useLayoutEffect(() => {
    if (!isShown || isDone.current) return undefined;
    isDone.current = true;
    if (arrival === null) return undefined;
    const mine = arrival;
    const { scroll = 0, link = null } = mine;
    const main = document.getElementById("main");
    const heading = main.querySelector("h1");
    if (heading !== null) {
      heading.tabIndex = -1;
      heading.focus({ preventScroll: true });
    }
    const begunMs = performance.now();
    let frame = 0;
    const end = () => {
      cancelAnimationFrame(frame);
      if (arrival === mine) arrival = null;
    };
    // The page gets its full height only when its content is loaded.
    const settle = () => {
      scrollTo(0, scroll);
      const back = link && main.querySelector(`a[href="${CSS.escape(link)}"]`);
      if (back && document.activeElement === heading) back.focus({ preventScroll: true });
      const isThere = link === null ? Math.abs(scrollY - scroll) <= 1 : back !== null;
      if (isThere || performance.now() - begunMs > ARRIVAL_MS) end();
      else frame = requestAnimationFrame(settle);
    };
    settle();
    for (const name of ["wheel", "keydown", "pointerdown"]) {
      addEventListener(name, end, { once: true, passive: true });
    }
    return end;
  }, [isShown]);
}

// -- header --------------------------------------------------------------------------------

/** Labels of the connection states. */
function Connection() {
  const { state, problem } = useConnection();
  const word = { open: "Live", connecting: "Connecting…", lost: "Connection lost" }[state];
  return html`
    <span class=${`connection is-${state}`} role="status">
      <span class="connection-mark" aria-hidden="true"></span>
      <span>${word}${state === "lost" && (problem === null ? ", retrying" : `: ${problem.message}`)}</span>
    </span>
    ${state === "lost" &&
    html`<button type="button" class="quiet" onClick=${() => live.connect()}>Reconnect now</button>`}
  `;
}

function ZoneSwitch() {
  const [zone, toggle] = useZone();
  const now = Date.now();
  const offset = formatLocalTime(now).slice(formatTime(now).length - 1);
  return html`
    <button type="button" class="quiet" aria-pressed=${zone === "local"} onClick=${toggle}>
      ${zone === "UTC" ? "Times in UTC" : `Times local (UTC${offset})`}
    </button>
  `;
}

live.connect();
document.getElementById("app").replaceChildren();
render(html`<${App} />`, document.getElementById("app"));
