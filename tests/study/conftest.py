"""A browser, and the page of a small model in training."""

import pytest
from pages import traced_model


@pytest.fixture
def traced():
    return traced_model()


@pytest.fixture(scope="module")
def chrome():
    from tools import browser  # only where a browser is asked for: the other tests run without the tools

    found = browser.Browser()
    yield found
    found.close()


@pytest.fixture
def page(chrome, traced, tmp_path):
    _, x, graph = traced
    path = tmp_path / "page.html"
    path.write_text(graph.html(inputs=[x]), encoding="utf-8")
    chrome.open(path)
    yield chrome
    assert chrome.errors() == []
