"""The graph on the page: the colour of a box, what it leads to, and lines that pass no box."""

import re
from dataclasses import replace

from reports import BLOCKED, CATALOGUE, FAILED, HOSTILE, POSITIONS, SCALED, a_report

from conformance.page import to_html
from conformance.page.graph import _lanes, claims_of_boxes, graph_of
from conformance.report import to_json
from conformance.verdict import Result, Verdict

NORM = "norm-is-its-formula"


def box(number, parent, path, cls, **fields):
    empty = {"given": "2x3", "gave": "2x3", "like": "", "file": "", "first": 0, "last": 0}
    lists = {"reads": [], "ends": [], "shows": [], "roles": []}
    return {"number": number, "parent": parent, "path": path, "cls": cls, **empty, **lists, **fields}


GRAPH = [
    box(0, -1, "", "GPT", file="/home/me/model.py", first=1, last=40, ends=[3]),
    box(1, 0, "attn", "Attn", file="/home/me/model.py", first=5, last=20, reads=[-1]),
    box(2, 0, "norm", "LayerNorm", reads=[-1, 1], shows=["norm"]),
    box(3, 0, "codes", HOSTILE, reads=[2], roles=["sinusoidal_encoding"]),
]


def json_of(graph=GRAPH, **verdicts):
    results = {SCALED: replace(FAILED, graph=graph), NORM: Result(NORM, Verdict.PASS, roles=["module"])}
    results[POSITIONS] = Result(POSITIONS, Verdict.PASS, roles=["sinusoidal_encoding"])
    results[BLOCKED] = Result(BLOCKED, Verdict.PASS, roles=["model"])
    return to_json(replace(a_report("gpt", results), chosen=[CATALOGUE.claims[slug] for slug in results]))


def test_claims_belong_to_the_line_the_inside_the_role_or_the_whole():
    report = json_of()
    found = {number: [c["slug"] for c in claims] for number, claims in claims_of_boxes(GRAPH, report).items()}
    assert found == {0: [BLOCKED], 1: [SCALED], 2: [NORM], 3: [POSITIONS]}


def test_a_box_has_the_colour_of_its_claims_and_leads_to_them():
    text = graph_of(json_of(), "s")
    assert "1 of 4 boxes red" in text
    assert re.findall(r'<g class="box (\w+)"', text) == ["good", "bad", "good", "good"]
    listed = text[text.index('id="s-box-1"') :]
    assert f'href="#{SCALED}"' in listed[: listed.index("</section>")]
    assert "The scores are not divided by sqrt(d_k)." in listed


def test_names_of_classes_are_escaped():
    assert HOSTILE not in to_html([json_of()])


def test_a_report_without_a_recorded_run_has_no_graph():
    assert graph_of(json_of(graph=[]), "s") == ""
    assert 'class="graph"' not in to_html([json_of(graph=[])])


def test_the_head_of_the_page_names_what_is_wrong():
    head = to_html([json_of()]).partition("</header>")[0]
    assert f'<a href="#{SCALED}">The scores are not divided by sqrt(d_k).</a>' in head


def test_lines_that_pass_the_same_box_have_lanes_of_their_own():
    assert _lanes([(0, 3), (1, 3), (3, 5), (0, 3)]) == [1, 0, 0, 1]
