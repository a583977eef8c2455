"""The plot of costs by size."""

import re
from xml.etree import ElementTree as ET

from logstore.bench.report.curves import curves_by_axis, growth_plot
from logstore.bench.report.result import Figures, Line


def line(axis, task, size, cost):
    return Line(
        name=f"growth/{axis}-{task}-{size}",
        title="",
        unit="ms",
        higher_is_better=False,
        here=Figures([cost, cost, cost * 9]),
        facts={"axis": axis, "task": task, "size": size},
    )


LINES = [
    line("segments", "open", 100, 10.0),
    line("segments", "open", 1, 1.0),
    line("segments", "open", 10, 3.0),
    line("segments", "clean", 1, 0.0001),
    line("segments", "clean", 100, 9.9),
    line("keys", "clean", 1000, 5.0),
    line("keys", "clean", 100_000, 5000.0),
]


def test_lines_are_grouped_by_axis_and_ordered_by_size():
    assert curves_by_axis(LINES) == {
        "segments": [
            ("open", [(1, 1.0), (10, 3.0), (100, 10.0)]),
            ("clean", [(1, 0.0001), (100, 9.9)]),
        ],
        "keys": [("clean", [(1000, 5.0), (100_000, 5000.0)])],
    }


def test_each_axis_is_a_panel_with_its_scales_curves_and_labels_apart():
    drawn = growth_plot(LINES)
    ET.fromstring(drawn)
    assert re.findall(r'font-weight="bold">(.*?)</text>', drawn) == ["segments", "keys"]
    assert re.findall(r'<g transform="translate\((.*?)\)"', drawn) == ["0 0", "400 0"]
    segments, keys = (
        drawn.split("<g ")[1:][1:] if drawn.count("<g ") > 2 else drawn.split("<g ")[1:]
    )
    scale = r'text-anchor="(?:middle|end)">(.*?)</text>'
    assert re.findall(scale, segments) == [
        *("10⁰", "10¹", "10²"),
        *("100 ns", "1 µs", "10 µs", "100 µs", "1 ms", "10 ms"),
    ]
    assert re.findall(scale, keys) == [
        "10³",
        "10⁴",
        "10⁵",
        "1 ms",
        "10 ms",
        "100 ms",
        "1 s",
        "10 s",
    ]
    assert re.findall(r'points="(.*?) "', segments) == [
        "60.0,76.0 195.0,54.1 330.0,30.0",
        "60.0,260.0 330.0,30.2",
    ]
    assert re.findall(r'points="(.*?) "', keys) == ["60.0,219.8 330.0,47.3"]
    assert re.findall(r'x="336" y="(.*?)" fill="(.*?)">(.*?)</text>', segments) == [
        *(("21.2", "#2f5d3a", "open"), ("34.2", "#c8553d", "clean")),
    ]
    assert re.findall(r'd="(M.*?)" stroke="#b9c0c8"', segments) == ["M60.0 260.0L330.0 168.0"]


def test_a_single_cost_has_a_scale():
    assert "10¹" in growth_plot([line("keys", "clean", 1, 1.0)])
