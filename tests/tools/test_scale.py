"""The model of training by many nodes: what must hold of any such model, and the page that shows it."""

from pathlib import Path

import pytest

from tools import scale

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


@pytest.mark.parametrize("computing", [1.0, 9.82])
def test_the_page_shows_what_the_command_says(computing):
    assert scale.table(computing) in PAGE.read_text()


@pytest.mark.parametrize("network", scale.NETWORKS)
@pytest.mark.parametrize("nodes", scale.NODES)
def test_a_step_is_never_shorter_than_its_computing_or_its_sending(nodes, network):
    took = scale.step(nodes, network, 1.0)
    assert took >= 1.0
    assert took >= scale.sent(4 * scale.PARAMETERS, nodes) / network.bandwidth
    assert took <= 1.0 + 20 * scale.summing(4 * scale.PARAMETERS // 20, nodes, network) * 1.01  # nothing overlaps
    one = scale.step(nodes, network, 1.0, bucket=4 * scale.PARAMETERS)
    assert one == pytest.approx(1.0 + scale.summing(4 * scale.PARAMETERS, nodes, network))


def test_a_ring_sends_all_but_a_share_twice():
    assert scale.sent(40, 4) == 60
    assert scale.sent(40, 1) == 0
