"""The page's components, rendered in Node.js without a browser, with answers of a real server."""

from __future__ import annotations

import json
from typing import Any

from tests.support.browser.front import Front
from tests.support.world.page import Asked

OPEN = """async (world, [hash, about]) => {
    globalThis.story = world;
    const { live } = await world.load("api.js");
    live.connect();
    world.sources[0].onopen();
    location.hash = hash;
    const { parseHash } = await world.load("routes.js");
    const { page, params } = parseHash(hash);
    world.root = await world.show(`${page}.js`, "Page", { params, about, refreshAbout: () => {} });
}"""

ANSWER = """async (_, answers) => {
    const world = globalThis.story;
    world.install();
    for (const [status, body] of answers) world.requests.shift().answer(body, status);
    await world.advance(answers.length > 0 ? 0 : 400);
    return world.requests.map(({ url, options }) => [options.method, url, options.body ?? null]);
}"""

EVENT = """async (_, [name, text, fields]) => {
    const world = globalThis.story;
    world.install();
    const isMeant = ({ text: own, attributes }) =>
        own.trim() === text || [...attributes.values()].includes(text);
    const target = world.root.all().find((node) => node.heard.has(name) && isMeant(node));
    if (target === undefined) throw new Error(`nothing to ${name} at ${text}`);
    Object.assign(target, fields);
    target.dispatch(name);
    await world.advance(0);
}"""

SEND = """async (_, [name, data]) => {
    globalThis.story.install();
    globalThis.story.sources[0].send(name, data);
}"""

LINES = """async () => {
    globalThis.story.install();
    return globalThis.story.root.childNodes.flatMap((each) => each.outline());
}"""

END = """async () => {
    const world = globalThis.story;
    world.install();
    world.end();
    await world.advance(0);
    return location.hash;
}"""


class Story:
    """A page that is shown: `lines` are its elements, `requests` are those that it has sent."""

    def __init__(self, front: Front, page: Asked, address: str, **about: object) -> None:
        self._front, self._page = front, page
        self.requests: list[list[Any]] = []
        front.run(OPEN, [address, page.get("/api/about") | about])
        self.settle()

    def settle(self) -> None:
        """Answer requests until the page sends none."""
        answers: list[list[Any]] = []
        while pending := self._front.run(ANSWER, answers):
            answers = []
            for method, target, body in pending:
                self.requests.append([method, target, body and json.loads(body)])
                answer = self._page.ask(method, f"/{target}", (body or "").encode(), None)
                answers.append([answer.status, json.loads(answer.body)])
        if answers:
            self.settle()

    def event(self, name: str, text: str, **fields: object) -> None:
        """Dispatch an event at the first element with a text or an attribute's value."""
        self._front.run(EVENT, [name, text, fields])
        self.settle()

    def click(self, text: str) -> None:
        self.event("Click", text)

    def send(self, name: str, data: object) -> None:
        """Send an event of the server's stream."""
        self._front.run(SEND, [name, data])
        self.settle()

    @property
    def lines(self) -> list[str]:
        lines: list[str] = self._front.run(LINES)
        return lines

    def end(self) -> str:
        """Remove the page, and return its last address."""
        address: str = self._front.run(END)
        return address
