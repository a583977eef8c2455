"""The pictures of the terminal in docs/pictures show the output of the commands."""

import html
import re

import pytest

from tools import pictures, question_story


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    question_story.make(folder)
    return folder


def words(svg: str) -> list[str]:
    texts = re.findall(r"<text [^>]*>(.*?)</text>", svg)
    return " ".join(html.unescape(text).replace("\xa0", " ") for text in texts).split()


@pytest.mark.parametrize("name", pictures.TERMINAL)
def test_picture_shows_the_output(name, story):
    """`make pictures` writes it."""
    shown = (pictures.DIRECTORY / f"{name}.svg").read_text(encoding="utf-8")
    assert not re.search(r"(url\(|href=)[\"']?\w+:", shown), "it loads something"
    assert words(shown) == words(pictures.terminal(pictures.TERMINAL[name], story))
    assert len(words(shown)) > 20
