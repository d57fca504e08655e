"""The table of implementations that the specificity tool runs."""

from __future__ import annotations

from conformance.adapters import parse
from conformance.protocol import ROLES
from tools import specificity


def test_the_table_names_implementations_roles_and_claims_that_exist() -> None:
    from conformance import catalogue

    found = specificity.subjects()
    assert len({subject.name for subject in found}) == len(found) >= 12
    for subject in found:
        parse(subject.impl)
        assert set(subject.has) <= set(ROLES), subject.name
        assert set(subject.faults) <= set(catalogue.load().claims), subject.name
        assert "torch" not in subject.install, f"{subject.name}: torch must stay what it is"
