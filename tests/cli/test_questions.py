"""Every command on the pages of docs/questions runs and prints the documented output."""

import re
import shutil

import pytest

from tools import question_pages, question_story
from tools.question_pages import PAGES, Shell, agrees, steps


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    folder = tmp_path_factory.mktemp("story")
    question_story.make(folder)
    return folder


def _slow_if_searching(path):
    """Return the page as a parameter; a page with a search of `simulate` takes many seconds."""
    searches = "--goal" in path.read_text(encoding="utf-8")
    return pytest.param(path, id=path.stem, marks=pytest.mark.slow if searches else ())


@pytest.mark.parametrize("path", tuple(map(_slow_if_searching, PAGES)))
def test_commands_print_the_documented_output(path, story, tmp_path):
    """If the new output is right: `python tools/question_pages.py` writes it."""
    shutil.copytree(story, tmp_path, dirs_exist_ok=True)
    page = path.read_text(encoding="utf-8")
    assert question_pages.written(page, tmp_path) == page
    assert page.startswith("# ")
    assert page.count("\n$ logstore ") >= 2


def test_pages_answer_the_questions():
    assert [path.stem for path in PAGES] == [
        "back-under-a-broker",
        "get-the-data-out",
        "is-this-persons-data-gone",
        "rescue-a-partition",
        "what-would-this-setting-do",
        "when-does-this-tombstone-go",
        "which-setting-keeps-my-promise",
        "why-does-it-grow",
        "why-is-it-not-compacted",
    ]


def test_a_wrong_output_is_noticed(tmp_path):
    page = "# x\n\n```console\n$ echo a\nb\n```\n"
    assert question_pages.written(page, tmp_path) == page.replace("\nb\n", "\na\n")
    dots = "```console\n$ printf 'a\\nb\\nc\\n'\na\n…\nd\n```\n"
    assert question_pages.written(dots, tmp_path) == dots.replace("…\nd", "b\nc")
    assert question_pages.written(dots.replace("d", "c"), tmp_path) == dots.replace("d", "c")


def test_dots_match_anything():
    assert agrees("a 17 b\nc\nd\n", "a … b\n…\nd\n")
    assert agrees("a\n", "a\n…\n")
    assert not agrees("a\nb\n", "a\n")
    assert not agrees("ab\n", "a…c\n")
    assert list(steps("$ a \\\n  b\nc\n$ d\n")) == [("a \\\n  b", "c\n"), ("d", "")]


def test_exit_codes_are_shown(tmp_path):
    shell = Shell(tmp_path)
    assert re.match("error: unknown command", shell.run("logstore nonsense"))
    assert shell.run("echo $?") == "2\n"
    assert shell.run("true") == ""
    assert shell.run("echo $?") == "0\n"
