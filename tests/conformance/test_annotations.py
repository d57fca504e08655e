"""What is wrong at the user's lines: SARIF, and GitHub's workflow commands."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from reports import BLOCKED, FAILED, POSITIONS, SCALED, broken, kept, report

from conformance.annotations import github_commands, to_sarif
from conformance.verdict import Result, Verdict

TEXT = {"type": "object", "properties": {"text": {"type": "string", "minLength": 1}}, "required": ["text"]}
LOCATION = {
    "type": "object",
    "properties": {
        "physicalLocation": {
            "type": "object",
            "properties": {
                "artifactLocation": {"type": "object", "properties": {"uri": {"type": "string"}}, "required": ["uri"]},
                "region": {
                    "type": "object",
                    "properties": {"startLine": {"type": "integer", "minimum": 1}},
                    "required": ["startLine"],
                    "additionalProperties": False,
                },
            },
            "required": ["artifactLocation", "region"],
            "additionalProperties": False,
        }
    },
    "required": ["physicalLocation"],
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": TEXT,
        "locations": {"type": "array", "items": LOCATION},
    },
    "required": ["message"],
    "additionalProperties": False,
}
RULE = {
    "type": "object",
    "properties": {"id": {"type": "string"}, "shortDescription": TEXT, "help": TEXT},
    "required": ["id"],
    "additionalProperties": False,
}
SARIF = {
    "type": "object",
    "properties": {
        "$schema": {"type": "string"},
        "version": {"const": "2.1.0"},
        "runs": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "tool": {
                        "type": "object",
                        "properties": {
                            "driver": {
                                "type": "object",
                                "properties": {
                                    "name": {"type": "string"},
                                    "rules": {"type": "array", "uniqueItems": True, "items": RULE},
                                },
                                "required": ["name"],
                                "additionalProperties": False,
                            }
                        },
                        "required": ["driver"],
                        "additionalProperties": False,
                    },
                    "automationDetails": {
                        "type": "object",
                        "properties": {"id": {"type": "string"}},
                        "additionalProperties": False,
                    },
                    "results": {"type": "array", "items": RESULT},
                    "properties": {"type": "object"},
                },
                "required": ["tool"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["version", "runs"],
    "additionalProperties": False,
}
"""The part of the SARIF 2.1.0 schema (OASIS) that is used here."""

NOTED = Result(POSITIONS, Verdict.NOTE, what="positions", got="none")


@pytest.mark.parametrize(
    "made",
    [
        broken(),
        kept(),
        report("no place", {SCALED: replace(FAILED, place="")}),
        report("absolute", {SCALED: replace(FAILED, place="/a b/model.py:3"), POSITIONS: NOTED}),
    ],
)
def test_sarif_keeps_its_schema(made):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(SARIF).validate(json.loads(json.dumps(to_sarif([made]), allow_nan=False)))


def test_sarif_has_a_result_at_the_users_line_for_each_failure_and_note():
    (run,) = to_sarif([report("mine", {SCALED: FAILED, BLOCKED: Verdict.FAIL, POSITIONS: NOTED})])["runs"]
    failure, note = run["results"]
    assert (failure["ruleId"], failure["level"]) == (SCALED, "error")
    assert [run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] for result in run["results"]] == [
        SCALED,
        POSITIONS,
    ]
    (location,) = failure["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "model.py"},
        "region": {"startLine": 12},
    }
    assert failure["message"]["text"].startswith(f"{FAILED.diagnosis} To mend it: {FAILED.mend}. scores: expected 0.5")
    assert (note["ruleId"], note["level"]) == (POSITIONS, "note")
    assert "locations" not in note


def test_paths_become_uris():
    def uri(place):
        (run,) = to_sarif([report("mine", {SCALED: replace(FAILED, place=place)})])["runs"]
        return run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]

    assert uri("my models/a.py:1") == "my%20models/a.py"
    assert uri("/my models/a.py:1 in f: return x") == "file:///my%20models/a.py"


def test_what_was_not_tested_is_in_both():
    made = report("mine", {SCALED: replace(FAILED, untested=["generate() raised"])})
    assert to_sarif([made])["runs"][0]["properties"]["untested"] == ["generate() raised"]
    assert github_commands(made)[0] == "::error title=not tested::generate() raised"


def test_github_shows_failures_at_the_users_line():
    error, notice = github_commands(report("mine", {SCALED: FAILED, POSITIONS: NOTED}))
    assert error.startswith(f"::error file=model.py,line=12,title={SCALED}::{FAILED.diagnosis} ")
    assert notice.startswith(f"::notice title={POSITIONS}::")
    assert github_commands(kept()) == []


def test_no_message_ends_its_command_or_begins_another():
    place = "a,b:c.py:3"
    (command,) = github_commands(
        report("mine", {SCALED: replace(FAILED, place=place, diagnosis="100 %\n::error::forged")})
    )
    assert "\n" not in command
    assert command.startswith("::error file=a%2Cb%3Ac.py,line=3,title=")
    assert "::100 %25%0A::error::forged " in command
